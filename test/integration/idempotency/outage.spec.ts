import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { arg, IdempotentBy } from 'nestjs-cmdx';
import { type Application, closeApplicationsAfterEach } from '../../support/application.js';
import { bootOnRedis } from '../../support/on-redis.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { settledWithin, until, waitFor } from '../../support/time.js';

const STORE_TIMEOUT_MS = 200;
/** A loaded machine may notice a deadline late. */
const SETTLES_WITHIN_MS = STORE_TIMEOUT_MS + 200;
const SHORT_LEASE_MS = 300;

@Injectable()
class Orders {
  runs = 0;
  body: () => unknown = () => undefined;

  @IdempotentBy(arg(0))
  async ship(_id: string): Promise<string> {
    return this.#work();
  }

  @IdempotentBy(arg(0), { onStoreError: 'run' })
  async tolerant(_id: string): Promise<string> {
    return this.#work();
  }

  /** An outage is longer than this lease. */
  @IdempotentBy(arg(0), { lease: '300ms' })
  async brief(_id: string): Promise<string> {
    return this.#work();
  }

  async #work(): Promise<string> {
    this.runs += 1;
    await this.body();
    return `value of run ${this.runs}`;
  }
}

type Method = 'ship' | 'tolerant' | 'brief';

let server: RedisServer;
let redis: Redis;
/** Between the first application and Redis. */
let proxy: TcpProxy;
let one: Application;
/** The second one has a connection of its own, straight to Redis. */
let two: Application;
let here: Orders;
let there: Orders;

closeApplicationsAfterEach();

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.url);
});

beforeEach(async () => {
  await redis.flushall();
  proxy = await TcpProxy.start(server.port);
  const storeTimeout = `${STORE_TIMEOUT_MS}ms` as const;
  one = await bootOnRedis(proxy.url, [Orders], { storeTimeout });
  two = await bootOnRedis(server.url, [Orders], { storeTimeout });
  [here, there] = [one.get(Orders), two.get(Orders)];
  for (const orders of [here, there]) {
    await orders.ship(`warm-${orders === here}`);
    orders.runs = 0;
  }
  one.telemetry.clear();
});

afterEach(async () => {
  server.thaw();
  await proxy.stop();
});

afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

/** How a call ends: its value, or the code of its error. */
async function answerOf(orders: Orders, method: Method, id = 'order-1'): Promise<string> {
  return orders[method](id).catch(
    (error: { readonly code?: string; readonly message: string }) => error.code ?? error.message,
  );
}

/** The same, and the caller has not been kept waiting. */
async function promptAnswerOf(orders: Orders, method: Method): Promise<string> {
  return settledWithin(SETTLES_WITHIN_MS, answerOf(orders, method));
}

function recordOf(method: Method): Promise<string | null> {
  return redis.get(`cmdx:idem:Orders.${method}:order-1`);
}

/** Asks the second application again and again, until the first one has caught up. */
async function untilThereIs(answer: string, method: Method, meanwhile: string): Promise<void> {
  const others = new Set<string>();
  await until(
    async () => {
      const now = await answerOf(there, method);
      if (now !== answer) others.add(now);
      return now === answer;
    },
    `${answer} in the second application`,
    3_000,
  );
  for (const other of others) expect(other).toBe(meanwhile);
}

function runs(): number {
  return here.runs + there.runs;
}

describe('The store does not answer at the claim. What does the caller get, and what is left?', () => {
  it('frozen: store_unavailable, no run, and nothing stands that was written late', async () => {
    server.freeze();
    expect(await promptAnswerOf(here, 'ship')).toBe('store_unavailable');
    server.thaw();
    await until(
      async () => (await answerOf(here, 'ship', 'other')) !== 'store_unavailable',
      'Redis',
    );
    expect(await recordOf('ship')).toBeNull();
    here.runs = 0;
    expect(await answerOf(there, 'ship')).toBe('value of run 1');
    expect(runs()).toBe(1);
  });

  it("frozen, with onStoreError 'run': the body's value, an event, and nothing is kept", async () => {
    server.freeze();
    expect(await promptAnswerOf(here, 'tolerant')).toBe('value of run 1');
    expect(one.telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual([
      { policy: 'idempotency', reason: 'store_error' },
    ]);
    server.thaw();
    await until(
      async () => (await answerOf(here, 'ship', 'other')) !== 'store_unavailable',
      'Redis',
    );
    expect(await recordOf('tolerant')).toBeNull();
  });

  it('its reply is lost: the claim is asked for again, and there is one run', async () => {
    proxy.loseReplyOf(1, { only: 'evalsha' });
    expect(await answerOf(here, 'ship')).toBe('value of run 1');
    expect(one.telemetry.of('idempotency_claimed').map(({ payload }) => payload.run)).toEqual([1]);
    expect(await answerOf(there, 'ship')).toBe('value of run 1');
    expect(runs()).toBe(1);
  });

  it('its reply is lost, and so is the connection: the claim is given back as soon as there is one', async () => {
    proxy.loseReplyOf(1, { only: 'evalsha', andRefuse: true });
    expect(await promptAnswerOf(here, 'ship')).toBe('store_unavailable');
    expect(await recordOf('ship')).toMatch(/^p:1:/);
    expect(await answerOf(there, 'ship')).toBe('in_progress');
    proxy.restore();
    await untilThereIs('value of run 1', 'ship', 'in_progress');
    expect({ here: here.runs, there: there.runs }).toEqual({ here: 0, there: 1 });
  });

  it('for longer than the lease: abandoned meanwhile, and given back all the same', async () => {
    proxy.loseReplyOf(1, { only: 'evalsha', andRefuse: true });
    expect(await promptAnswerOf(here, 'brief')).toBe('store_unavailable');
    await waitFor(SHORT_LEASE_MS);
    expect(await answerOf(there, 'brief')).toBe('abandoned');
    proxy.restore();
    await untilThereIs('value of run 1', 'brief', 'abandoned');
    expect({ here: here.runs, there: there.runs }).toEqual({ here: 0, there: 1 });
  });
});

describe('The store does not answer while the body runs. Is that noticed?', () => {
  it('frozen for longer than the lease: the claim is renewed afterwards, and the value kept', async () => {
    let end = (): void => undefined;
    here.body = () => new Promise<void>((resolve) => (end = resolve));
    const first = answerOf(here, 'brief');
    await until(() => here.runs === 1, 'the body');
    server.freeze();
    await waitFor(2 * SHORT_LEASE_MS);
    server.thaw();
    await until(async () => (await answerOf(there, 'brief')) === 'in_progress', 'the renewal');
    end();
    expect(await first).toBe('value of run 1');
    expect(await answerOf(there, 'brief')).toBe('value of run 1');
    expect({ runs: runs(), stale: one.telemetry.of('idempotency_stale') }).toEqual({
      runs: 1,
      stale: [],
    });
  });
});

describe('The store does not answer at the completion. What does the caller get, and a redelivery?', () => {
  it('frozen: the value, and as soon as Redis goes on, it is kept', async () => {
    here.body = () => server.freeze();
    expect(await promptAnswerOf(here, 'ship')).toBe('value of run 1');
    expect(one.telemetry.of('store_error').map(({ payload }) => payload)).toMatchObject([
      { operation: 'leave', policies: ['idempotency'] },
    ]);
    server.thaw();
    await untilThereIs('value of run 1', 'ship', 'in_progress');
    expect(await answerOf(here, 'ship')).toBe('value of run 1');
    expect(runs()).toBe(1);
  });

  it('no connection: the value; in_progress meanwhile, then a duplicate with the kept value', async () => {
    here.body = () => proxy.refuse();
    expect(await promptAnswerOf(here, 'ship')).toBe('value of run 1');
    expect(one.telemetry.of('store_error').map(({ payload }) => payload.operation)).toEqual([
      'leave',
    ]);
    for (let i = 0; i < 3; i += 1) {
      expect(await answerOf(there, 'ship')).toBe('in_progress');
      await waitFor(100);
    }
    proxy.restore();
    await untilThereIs('value of run 1', 'ship', 'in_progress');
    expect(await answerOf(here, 'ship')).toBe('value of run 1');
    expect(runs()).toBe(1);
  });

  it('no connection for longer than the lease: abandoned meanwhile, then a duplicate', async () => {
    here.body = () => proxy.refuse();
    expect(await promptAnswerOf(here, 'brief')).toBe('value of run 1');
    await waitFor(SHORT_LEASE_MS);
    expect(await answerOf(there, 'brief')).toBe('abandoned');
    proxy.restore();
    await untilThereIs('value of run 1', 'brief', 'abandoned');
    expect(runs()).toBe(1);
  });

  it('its reply is lost: it is sent again, which is neither late nor stale', async () => {
    here.body = () => proxy.loseReplyOf(1, { only: 'evalsha' });
    expect(await promptAnswerOf(here, 'ship')).toBe('value of run 1');
    expect(one.telemetry.names).not.toContain('store_error');
    expect(one.telemetry.names).not.toContain('idempotency_stale');
    expect(await answerOf(there, 'ship')).toBe('value of run 1');
    expect(runs()).toBe(1);
  });

  it('its reply is lost, and so is the connection: the value, and a duplicate at once', async () => {
    here.body = () => proxy.loseReplyOf(1, { only: 'evalsha', andRefuse: true });
    expect(await promptAnswerOf(here, 'ship')).toBe('value of run 1');
    expect(await answerOf(there, 'ship')).toBe('value of run 1');
    proxy.restore();
    await until(async () => (await answerOf(here, 'ship')) === 'value of run 1', 'Redis');
    expect(runs()).toBe(1);
  });
});

it('A body throws while the store is away for longer than the lease: is its claim given back afterwards?', async () => {
  here.body = () => {
    proxy.refuse();
    throw new Error('out of stock');
  };
  expect(await promptAnswerOf(here, 'brief')).toBe('out of stock');
  await waitFor(SHORT_LEASE_MS);
  expect(await answerOf(there, 'brief')).toBe('abandoned');
  proxy.restore();
  await untilThereIs('value of run 1', 'brief', 'abandoned');
  expect({ here: here.runs, there: there.runs }).toEqual({ here: 1, there: 1 });
});
