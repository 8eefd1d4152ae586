import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  CircuitBreaker,
  CircuitBreakers,
  InputSchema,
  MemoryStore,
  RateLimit,
  RetryOn,
  type Schema,
  SystemClock,
} from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootMessage } from '../../support/definition.js';
import { startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
refuseUnhandledRejections();

/** What TypeScript would refuse. */
const rejects = (async () => {
  throw new Error('nobody listens');
}) as never;

@Injectable()
class Careless {
  runs = 0;

  @RetryOn(rejects, { delay: 0 })
  async predicate(): Promise<void> {
    this.#fail();
  }

  @RetryOn(Error, { jitter: rejects })
  async jitter(): Promise<void> {
    this.#fail();
  }

  @CircuitBreaker({ ignore: rejects, failOn: rejects, minimumCalls: 1 })
  async breaker(): Promise<void> {
    this.#fail();
  }

  #fail(): void {
    this.runs += 1;
    throw new TypeError('the body');
  }
}

describe('a predicate or jitter that answers a promise, which rejects', () => {
  it.each(['predicate', 'breaker'] as const)('matches nothing (%s)', async (method) => {
    const app = await boot({ providers: [Careless] });
    await expect(app.get(Careless)[method]()).rejects.toThrow('the body');
    expect(app.get(Careless).runs).toBe(1);
  });

  it('is no number of seconds (jitter)', async () => {
    const app = await boot({ providers: [Careless] });
    await expect(app.get(Careless).jitter()).rejects.toThrow(RangeError);
  });
});

const mute: Schema = {
  '~standard': { version: 1, vendor: 'test', validate: () => ({ issues: [] }) },
};

@Injectable()
class Mute {
  runs = 0;

  @InputSchema(mute)
  async take(_value: unknown): Promise<void> {
    this.runs += 1;
  }
}

it('an empty list of issues is a no all the same', async () => {
  const app = await boot({ providers: [Mute] });
  await expect(app.get(Mute).take('x')).rejects.toMatchObject({
    code: 'input_invalid',
    response: { message: ['Invalid value'] },
  });
  expect(app.get(Mute).runs).toBe(0);
});

describe('the shared name of a breaker', () => {
  it.each([
    ['empty', CircuitBreaker('')],
    ['with a colon', CircuitBreaker('a:b')],
    ['given twice', CircuitBreaker('payments', { name: 'orders' })],
  ])('%s', async (_, decorator) => {
    class Shop {
      @decorator
      async pay(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Shop] }))).toMatch(
      /^Shop\.pay: @CircuitBreaker: expected (a non-empty|one) shared name/,
    );
  });
});

@Injectable()
class Flooded {
  @RateLimit((address: string) => address, { max: 100, per: '1h' })
  async page(_address: string): Promise<void> {}

  @CircuitBreaker('flooded', { minimumCalls: 5 })
  async sick(): Promise<void> {
    throw new Error('sick');
  }
}

it('a full memory store does not forget a breaker that is about to open for fresh rate counters', async () => {
  const store = new MemoryStore({ maxKeys: 200 });
  const app = await boot({ providers: [Flooded] }, { store });
  const flooded = app.get(Flooded);
  for (let call = 0; call < 5; call++) {
    await expect(flooded.sick()).rejects.toThrow('sick');
    for (let client = 0; client < 300; client++) await flooded.page(`${call}.${client}`);
  }
  await expect(flooded.sick()).rejects.toMatchObject({ code: 'circuit_open' });
});

@Injectable()
class Upstream {
  @CircuitBreaker('upstream', { minimumCalls: 1, openFor: '100ms', probeTimeout: '60s' })
  async call(body: () => void): Promise<void> {
    body();
  }
}

it('the permit of a probe whose outcome could not be told is given back', async () => {
  const redis = await startRedis();
  const proxy = await TcpProxy.start(redis.port);
  try {
    const store = new RedisStore({ url: proxy.url });
    const options = { clock: new SystemClock(), store };
    const app = await boot({ providers: [Upstream] }, options);
    const upstream = app.get(Upstream);
    const sick = upstream.call(() => {
      throw new Error('sick');
    });
    await expect(sick).rejects.toThrow('sick');
    await options.clock.sleep(150);
    await upstream.call(() => proxy.blackHole());
    proxy.cut();
    const again = async (): Promise<string> => {
      for (let tries = 0; tries < 100; tries++) {
        const code = await upstream
          .call(() => undefined)
          .then(
            () => 'let in',
            (error: { code: string }) => error.code,
          );
        if (code === 'let in') return code;
        await options.clock.sleep(50);
      }
      return 'never let in';
    };
    expect(await again()).toBe('let in');
    expect(await app.module.get(CircuitBreakers).inspect('cmdx:cb:upstream')).toMatchObject({
      state: 'closed',
    });
    await app.close();
  } finally {
    await proxy.stop();
    await redis.stop();
  }
}, 20_000);
