import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  CircuitBreaker,
  CircuitBreakers,
  type CmdxModuleOptions,
  LockWith,
  RateLimit,
  type RefusalError,
  SystemClock,
} from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { endOf } from '../../support/ends.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { until, waitFor } from '../../support/time.js';

closeApplicationsAfterEach();

const KEY = 'cmdx:cb:upstream';

@Injectable()
class Upstream {
  runs = 0;

  @CircuitBreaker('upstream', { minimumCalls: 2, openFor: '100ms' })
  async call(body: () => unknown = () => 'well'): Promise<unknown> {
    this.runs += 1;
    return body();
  }

  @RateLimit({ max: 5, per: '1m' })
  @LockWith('lock')
  async other(inside: () => unknown): Promise<unknown> {
    return inside();
  }
}

/** Closed, and nothing of the past is left in it. */
const ANEW = { state: 'closed', epoch: expect.any(Number), calls: 0, failures: 0 };

function sick(): never {
  throw new Error('sick');
}

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

describe.each(['memory', 'Redis'] as const)('what can an operator do, in %s?', (where) => {
  async function bootUpstream() {
    const onRedis: CmdxModuleOptions = {
      store: new RedisStore({ url: server.url }),
      clock: new SystemClock(),
    };
    const application = await boot({ providers: [Upstream] }, where === 'Redis' ? onRedis : {});
    const breakers = application.module.get(CircuitBreakers);
    const pass = (ms: number): Promise<void> =>
      where === 'Redis' ? waitFor(ms) : application.clock.advance(`${ms}ms`);
    // The tests share one Redis.
    await application.store.forget(KEY);
    return { ...application, upstream: application.get(Upstream), breakers, pass };
  }

  it('look at it: what it has counted, whether it is open and for how long', async () => {
    const { upstream, breakers, pass } = await bootUpstream();
    expect(await breakers.inspect(KEY)).toBeUndefined();
    await endOf(upstream.call(sick));
    expect(await breakers.inspect(KEY)).toEqual({
      state: 'closed',
      epoch: 0,
      calls: 1,
      failures: 1,
    });
    await endOf(upstream.call(sick));
    const open = await breakers.inspect(KEY);
    expect(open).toEqual({
      state: 'open',
      epoch: expect.any(Number),
      calls: 0,
      failures: 0,
      retryAfter: expect.any(Number),
    });
    expect(open?.retryAfter).toBeGreaterThan(0);
    expect(open?.retryAfter).toBeLessThanOrEqual(0.1);
    await pass(110);
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'open', retryAfter: 0 });
    const door = new Door();
    const probe = upstream.call(() => door.pass());
    await pass(20);
    const half = await breakers.inspect(KEY);
    expect(half).toMatchObject({ state: 'half_open' });
    expect(half?.epoch).toBeGreaterThan(open?.epoch ?? Infinity);
    door.open();
    await probe;
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'closed', calls: 0 });
  });

  it('force it open: nobody runs, nobody is told when', async () => {
    const { upstream, breakers, pass, telemetry } = await bootUpstream();
    await upstream.call();
    await breakers.forceOpen(KEY);
    await pass(150);
    const error = (await upstream.call().catch((reason: unknown) => reason)) as RefusalError;
    expect(error).toMatchObject({ code: 'circuit_open', metadata: { circuitKey: KEY } });
    expect(error.retryAfter).toBeUndefined();
    expect(error.metadata).not.toHaveProperty('retryAfter');
    expect(upstream.runs).toBe(1);
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'forced_open' });
    expect(telemetry.of('circuit_rejected')).toHaveLength(1);
  });

  it('force it closed: everybody runs, nothing is counted', async () => {
    const { upstream, breakers } = await bootUpstream();
    for (let call = 0; call < 2; call++) await endOf(upstream.call(sick));
    expect(await endOf(upstream.call())).toBe('circuit_open');
    await breakers.forceClosed(KEY);
    for (let call = 0; call < 5; call++) expect(await endOf(upstream.call(sick))).toBe('sick');
    expect(await breakers.inspect(KEY)).toEqual({
      state: 'forced_closed',
      epoch: expect.any(Number),
      calls: 0,
      failures: 0,
    });
  });

  it('for a time: then it is closed, and counts from nothing', async () => {
    const { upstream, breakers, pass } = await bootUpstream();
    await endOf(upstream.call(sick));
    await breakers.forceOpen(KEY, { ttl: '200ms' });
    expect(await endOf(upstream.call())).toBe('circuit_open');
    await pass(210);
    expect(await endOf(upstream.call(sick))).toBe('sick');
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'closed', failures: 1 });
  });

  it('for an hour, if he does not say', async () => {
    const { breakers, store } = await bootUpstream();
    for (const force of ['forceOpen', 'forceClosed'] as const) {
      await breakers[force](KEY);
      const ttl = (await store.remainingTtl(KEY)) ?? 0;
      expect(ttl).toBeGreaterThan(3_595);
      expect(ttl).toBeLessThanOrEqual(3_600);
    }
  });

  it('reset it, whatever its state; what was under way is not counted', async () => {
    const { upstream, breakers } = await bootUpstream();
    expect(await breakers.reset(KEY)).toBe(false);
    for (let call = 0; call < 2; call++) await endOf(upstream.call(sick));
    expect(await breakers.reset(KEY)).toBe(true);
    expect(await upstream.call()).toBe('well');
    for (const force of ['forceOpen', 'forceClosed'] as const) {
      await breakers[force](KEY);
      const door = new Door();
      const late = endOf(
        upstream.call(async () => {
          await door.pass();
          sick();
        }),
      );
      if (force === 'forceClosed') while (door.inside === 0) await waitFor(1);
      expect(await breakers.reset(KEY)).toBe(true);
      door.open();
      await late;
      expect(await breakers.inspect(KEY)).toEqual(ANEW);
    }
  });

  it('reset one that never opened: what was under way is not counted, what begins after it is', async () => {
    const { upstream, breakers } = await bootUpstream();
    await endOf(upstream.call(sick));
    const doors = [new Door(), new Door()];
    const late = doors.map((door) =>
      endOf(
        upstream.call(async () => {
          await door.pass();
          sick();
        }),
      ),
    );
    await until(() => doors.every(({ inside }) => inside > 0), 'the calls to be under way');
    expect(await breakers.reset(KEY)).toBe(true);
    expect(await breakers.inspect(KEY)).toEqual(ANEW);
    for (const door of doors) door.open();
    expect(await Promise.all(late)).toEqual(['sick', 'sick']);
    expect(await breakers.inspect(KEY)).toEqual(ANEW);
    await endOf(upstream.call(sick));
    expect(await breakers.inspect(KEY)).toMatchObject({ calls: 1, failures: 1 });
    await endOf(upstream.call(sick));
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'open' });
  });

  it('reset it again: there is nothing left to forget, but what is under way is not counted', async () => {
    const { upstream, breakers, store } = await bootUpstream();
    await endOf(upstream.call(sick));
    expect(await breakers.reset(KEY)).toBe(true);
    const door = new Door();
    const late = endOf(
      upstream.call(async () => {
        await door.pass();
        sick();
      }),
    );
    await until(() => door.inside > 0, 'the call to be under way');
    const first = (await breakers.inspect(KEY))?.epoch;
    expect(await breakers.reset(KEY)).toBe(false);
    expect((await breakers.inspect(KEY))?.epoch).toBeGreaterThan(first ?? Infinity);
    door.open();
    await late;
    expect(await breakers.inspect(KEY)).toEqual(ANEW);
    const ttl = (await store.remainingTtl(KEY)) ?? 0;
    expect(ttl).toBeGreaterThan(3_595);
    expect(ttl).toBeLessThanOrEqual(3_600);
  });

  it('tell nobody of any of it: these are events of calls, and no call has made them', async () => {
    const { upstream, breakers, telemetry } = await bootUpstream();
    await endOf(upstream.call(sick));
    telemetry.clear();
    await breakers.forceOpen(KEY);
    await breakers.forceClosed(KEY);
    await breakers.reset(KEY);
    expect(telemetry.names).toEqual([]);
  });

  it('overrule a probe: neither its success nor its failure then changes anything', async () => {
    for (const end of [() => 'late', sick]) {
      const { upstream, breakers, pass, close } = await bootUpstream();
      for (let call = 0; call < 2; call++) await endOf(upstream.call(sick));
      await pass(110);
      const door = new Door();
      const probe = endOf(
        upstream.call(async () => {
          await door.pass();
          return end();
        }),
      );
      while (door.inside === 0) await waitFor(1);
      await breakers.forceOpen(KEY);
      door.open();
      await probe;
      expect(await breakers.inspect(KEY)).toMatchObject({ state: 'forced_open' });
      await close();
    }
  });

  it('nothing to what is no breaker', async () => {
    const { upstream, breakers, store } = await bootUpstream();
    await upstream.other(async () => {
      const key = 'cmdx:lock:Upstream.other:lock';
      const before = await store.get(key);
      expect(before).toBeDefined();
      expect(await breakers.inspect(key)).toBeUndefined();
      expect(await breakers.reset(key)).toBe(false);
      for (const force of ['forceOpen', 'forceClosed'] as const) {
        await expect(breakers[force](key)).rejects.toThrow('expected the key of a circuit breaker');
      }
      expect(await store.get(key)).toBe(before);
      expect(await breakers.reset('cmdx:rl:Upstream.other')).toBe(false);
    });
    expect(await store.get('cmdx:rl:Upstream.other')).toBe('1');
    await store.forget('cmdx:rl:Upstream.other');
  });
});

describe('what does the service refuse?', () => {
  it.each(['inspect', 'forceOpen', 'forceClosed', 'reset'] as const)(
    '%s: what is no key',
    async (method) => {
      const { module } = await boot({ providers: [Upstream] });
      for (const [key, shown] of [
        ['', '""'],
        [undefined, 'undefined'],
        [5, '5'],
      ] as const) {
        const call = async (): Promise<unknown> =>
          module.get(CircuitBreakers)[method](key as never);
        await expect(call()).rejects.toThrow(
          `CircuitBreakers.${method}: expected a store key, got ${shown}`,
        );
      }
    },
  );

  it.each([0, -1, Number.NaN, Infinity, 'soon', null])('a ttl of %p', async (ttl) => {
    const { module, store } = await boot({ providers: [Upstream] });
    for (const force of ['forceOpen', 'forceClosed'] as const) {
      const call = async (): Promise<unknown> =>
        module.get(CircuitBreakers)[force](KEY, { ttl: ttl as never });
      await expect(call()).rejects.toThrow('CircuitBreakers option "ttl": expected');
    }
    expect(await store.get(KEY)).toBeUndefined();
  });
});
