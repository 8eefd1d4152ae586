import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable, Post, type Provider } from '@nestjs/common';
import { Redis } from 'ioredis';
import {
  arg,
  Cmdx,
  header,
  IdempotencyRecords,
  IdempotentBy,
  isLeaseLostError,
  currentInvocation,
  LockWith,
  type Result,
} from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { type Application, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { bootOnRedis } from '../../support/on-redis.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { until, waitFor } from '../../support/time.js';

const AT_ONCE = 200;

/** Shared by the applications of a test: what the outside world would see. */
class World {
  runs = 0;
  readonly door = new Door();
}

@Injectable()
class Orders {
  signal: AbortSignal | undefined;

  constructor(private readonly world: World) {}

  @IdempotentBy(arg(0))
  async ship(_id: string): Promise<string> {
    return this.#body();
  }

  @IdempotentBy(arg(0), { onInProgress: 'wait' })
  async shipOrWait(_id: string): Promise<string> {
    return this.#body();
  }

  @LockWith(arg(0), { wait: 30 })
  @IdempotentBy(arg(0))
  async locked(_id: string): Promise<string> {
    return this.#body();
  }

  /** The keys are known only one after the other, so each ring is a trip of its own. */
  @LockWith(arg(1), { ttl: '1h' })
  @IdempotentBy(async (id: string) => id, { onInProgress: 'wait' })
  async looked(_id: string, _account: string): Promise<string> {
    return this.#body();
  }

  /** Renews its claim every 100 ms. */
  @IdempotentBy(arg(0), { lease: '300ms' })
  async renewed(_id: string): Promise<string> {
    this.signal = currentInvocation()?.signal;
    return this.#body();
  }

  @IdempotentBy(arg(0))
  async warm(_id: string): Promise<void> {}

  async #body(): Promise<string> {
    this.world.runs += 1;
    const run = this.world.runs;
    await this.world.door.pass();
    return `run ${run}`;
  }
}

@Controller('orders')
class OrdersController {
  constructor(private readonly world: World) {}

  @Post()
  @IdempotentBy(header('Idempotency-Key'), { scope: 'shared', onInProgress: 'wait' })
  async ship(): Promise<{ readonly run: number }> {
    this.world.runs += 1;
    const { runs } = this.world;
    await this.world.door.pass();
    return { run: runs };
  }
}

closeApplicationsAfterEach();
closeAppsAfterEach();

let server: RedisServer;
let redis: Redis;
let world: World;
let warmed = 0;

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.url);
});

afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

beforeEach(async () => {
  await redis.flushall();
  world = new World();
});

function providers(): Provider[] {
  return [Orders, { provide: World, useValue: world }];
}

/** Two applications on one Redis, connected, with their scripts loaded. */
async function bootTwo(url = server.url): Promise<readonly [Application, Application]> {
  const boot = (): Promise<Application> => bootOnRedis(url, providers());
  const both = [await boot(), await boot()] as const;
  for (const { get } of both) await get(Orders).warm(String(warmed++));
  return both;
}

/** Delivers the same order to all applications, in turn, all at once. */
function deliver(
  applications: readonly Application[],
  method: 'ship' | 'shipOrWait',
): Promise<Result>[] {
  return Array.from({ length: AT_ONCE }, (_, i) => {
    const { get } = applications[i % applications.length] as Application;
    return get(Cmdx).execute(() => get(Orders)[method]('order-1'));
  });
}

function recordOf(method: string, id: string): string {
  return `cmdx:idem:Orders.${method}:${id}`;
}

function storeErrorsOf(applications: readonly Application[]): number {
  return applications.flatMap(({ telemetry }) => telemetry.of('store_error')).length;
}

describe('What do 200 deliveries at once get?', () => {
  it('with wait: one of them runs, and 199 get its value, in two applications', async () => {
    const applications = await bootTwo();
    const results = deliver(applications, 'shipOrWait');
    await until(() => world.runs === 1, 'the body');
    await waitFor(50);
    world.door.open();
    const ended = await Promise.all(results);
    expect(new Set(ended.map(({ value }) => value))).toEqual(new Set(['run 1']));
    expect(ended.filter(({ status }) => status === 'success')).toHaveLength(1);
    expect(ended.filter(({ metadata }) => metadata.code === 'duplicate')).toHaveLength(199);
    expect({ runs: world.runs, storeErrors: storeErrorsOf(applications) }).toEqual({
      runs: 1,
      storeErrors: 0,
    });
  });

  it('with fail: one of them runs, and 199 are in_progress, in two applications', async () => {
    const applications = await bootTwo();
    let refused = 0;
    const results = deliver(applications, 'ship').map(async (result) => {
      const { metadata } = await result;
      refused += metadata.code === 'in_progress' ? 1 : 0;
      return metadata.code;
    });
    await until(() => refused === AT_ONCE - 1, '199 refusals');
    world.door.open();
    expect((await Promise.all(results)).filter((code) => code === undefined)).toHaveLength(1);
    expect({ runs: world.runs, storeErrors: storeErrorsOf(applications) }).toEqual({
      runs: 1,
      storeErrors: 0,
    });
  });

  it('with wait, over HTTP: 200 times the same answer, 199 of them marked as replayed', async () => {
    const { post, telemetry } = await startHttp('express', {
      controllers: [OrdersController],
      providers: [{ provide: World, useValue: world }],
      cmdx: { store: new RedisStore({ url: server.url }) },
    });
    const requests = Array.from({ length: AT_ONCE }, () =>
      post('/orders', {}, { 'idempotency-key': 'order-1' }),
    );
    await until(() => world.runs === 1, 'the body');
    await waitFor(50);
    world.door.open();
    const answers = await Promise.all(requests);
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`))).toEqual(
      new Set(['201 {"run":1}']),
    );
    const replayed = answers.filter(({ headers }) => headers.get('idempotent-replayed') === 'true');
    expect(replayed).toHaveLength(199);
    expect({ runs: world.runs, storeErrors: telemetry.of('store_error').length }).toEqual({
      runs: 1,
      storeErrors: 0,
    });
  });
});

it('What does it cost? Two commands for the first delivery, one for a duplicate, with a lock or without', async () => {
  const proxy = await TcpProxy.start(server.port);
  world.door.open();
  const application = await bootOnRedis(proxy.url, providers());
  const orders = application.get(Orders);
  try {
    for (const method of ['ship', 'locked'] as const) {
      const commands = async (id: string): Promise<number> => {
        const before = proxy.commandsFromClient;
        await orders[method](id);
        return proxy.commandsFromClient - before;
      };
      await commands('warm');
      expect([method, await commands('order-1')]).toEqual([method, 2]);
      // With a lock, what it holds is given back inside of the same command.
      expect([method, await commands('order-1')]).toEqual([method, 1]);
      expect(await redis.exists('cmdx:lock:Orders.locked:order-1')).toBe(0);
    }
  } finally {
    await application.close();
    await proxy.stop();
  }
});

describe('What becomes of a run under which Redis is flushed?', () => {
  it('nobody has begun anew: it is recorded late, and a redelivery is a duplicate', async () => {
    const [one, two] = await bootTwo();
    const first = one.get(Orders).ship('order-1');
    await until(() => world.runs === 1, 'the body');
    await redis.flushall();
    world.door.open();
    expect(await first).toBe('run 1');
    expect(await two.get(IdempotencyRecords).inspect(recordOf('ship', 'order-1'))).toMatchObject({
      state: 'done',
      run: 1,
    });
    expect(await two.get(Orders).ship('order-1')).toBe('run 1');
    expect(one.telemetry.of('idempotency_stale')).toEqual([]);
  });

  it.each(['is still at work', 'has finished'])(
    'another that has begun anew %s: its record stands',
    async (what) => {
      const [one, two] = await bootTwo();
      const first = one.get(Orders).ship('order-1');
      await until(() => world.runs === 1, 'the body');
      await redis.flushall();
      const oldDoor = world.door;
      const newDoor = new Door();
      Object.assign(world, { door: newDoor });
      const second = two.get(Orders).ship('order-1');
      await until(() => world.runs === 2, 'the second body');
      if (what === 'has finished') {
        newDoor.open();
        await second;
      }
      const record = await redis.get(recordOf('ship', 'order-1'));
      oldDoor.open();
      expect(await first).toBe('run 1');
      expect(one.telemetry.of('idempotency_stale')).toHaveLength(1);
      expect(await redis.get(recordOf('ship', 'order-1'))).toBe(record);
      newDoor.open();
      expect(await second).toBe('run 2');
      expect(await one.get(Orders).ship('order-1')).toBe('run 2');
    },
  );

  it('its signal tells, because nothing keeps others from beginning', async () => {
    const [one] = await bootTwo();
    const orders = one.get(Orders);
    const first = orders.renewed('order-1');
    await until(() => world.runs === 1, 'the body');
    await redis.flushall();
    await until(() => orders.signal?.aborted === true, 'the abort', 1_000);
    expect(isLeaseLostError(orders.signal?.reason)).toBe(true);
    world.door.open();
    expect(await first).toBe('run 1');
  });
});

describe('What does a delivery get that waits?', () => {
  it('at the lock of the same key, in another application: the first value, as a duplicate', async () => {
    const [one, two] = await bootTwo();
    const first = one.get(Orders).locked('order-1');
    await until(() => world.runs === 1, 'the body');
    const second = two.cmdx.execute(() => two.get(Orders).locked('order-1'));
    await waitFor(50);
    world.door.open();
    expect(await first).toBe('run 1');
    expect(await second).toMatchObject({
      status: 'skipped',
      value: 'run 1',
      metadata: { code: 'duplicate', replayable: true },
    });
    expect(world.runs).toBe(1);
    expect(await redis.exists('cmdx:lock:Orders.locked:order-1')).toBe(0);
  });

  it('for an asynchronous key in progress: the first value, and it holds no lease while it waits', async () => {
    const [one, two] = await bootTwo();
    const first = one.get(Orders).looked('order-1', 'acct-1');
    await until(() => world.runs === 1, 'the body');
    // Of another account: the lock lets it pass, and the claim then makes it wait.
    const second = two.get(Orders).looked('order-1', 'acct-2');
    const lock = 'cmdx:lock:Orders.looked:acct-2';
    await until(() => two.telemetry.of('lock_acquired').length === 1, 'the lock to be taken');
    await until(async () => (await redis.exists(lock)) === 0, 'the lock to be given back');
    // It asks again now and then; a try takes the lock and gives it back in one command.
    for (let i = 0; i < 100; i += 1) {
      expect(await redis.exists(lock)).toBe(0);
      await waitFor(2);
    }
    expect(two.telemetry.names).not.toContain('idempotency_duplicate');
    world.door.open();
    expect([await first, await second]).toEqual(['run 1', 'run 1']);
    expect(world.runs).toBe(1);
    expect(await redis.exists(lock)).toBe(0);
  });
});
