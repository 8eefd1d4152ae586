import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  CircuitBreaker,
  CircuitBreakers,
  currentInvocation,
  IdempotencyRecords,
  IdempotentBy,
  input,
  LockWith,
  RateLimit,
  RetryOn,
  ShuttingDownError,
} from 'nestjs-cmdx';
import { DUE, keysOf, orderOf, type Order, tracesOf } from '../../support/all-rings.js';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { bootOnRedis } from '../../support/on-redis.js';
import { startRedis } from '../../support/redis-server.js';
import { settledWithin, until } from '../../support/time.js';

closeApplicationsAfterEach();

class Flaky extends Error {}

@Injectable()
class Jobs {
  runs = 0;
  body: () => unknown = () => 'done';

  @RateLimit(input('payer'), { max: 5, per: '1h' })
  @CircuitBreaker(input('bank'))
  @LockWith(input('account'), { wait: '10m' })
  @IdempotentBy(input('reference'), { onInProgress: 'wait', wait: '10m' })
  @RetryOn(Flaky, { limit: 3, delay: '1m' })
  async run(_order: Order): Promise<unknown> {
    this.runs += 1;
    return this.body();
  }
}

const order = orderOf('ada');
const keys = keysOf(order, 'Jobs.run');
const FOREVER = { ttl: '1h' } as const;

/** A body that hears of its end, and says so. */
async function untilAborted(): Promise<never> {
  const { signal } = currentInvocation() as { readonly signal: AbortSignal };
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  throw signal.reason;
}

const errorOf = (call: Promise<unknown>): Promise<unknown> => call.catch((error: unknown) => error);

describe('the application closes while all rings are held', () => {
  it('a body that ends in time ends as ever: sample, permit, claim and lease', async () => {
    const app = await boot({ providers: [Jobs] }, { shutdownTimeout: '10s' });
    const door = new Door();
    const jobs = app.get(Jobs);
    jobs.body = () => door.pass().then(() => 'done');
    await app.store.set(keys.circuit, DUE, FOREVER);
    const call = jobs.run(order);
    await app.clock.advance(0);
    expect(door.inside).toBe(1);
    const closing = app.module.close();
    door.open();
    await expect(call).resolves.toBe('done');
    await closing;
    expect(await tracesOf(app, keys)).toMatchObject({
      circuit: 'closed',
      lease: undefined,
      claim: 'done',
      quota: 1,
    });
    expect(app.telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      'circuit_half_opened',
      'lock_acquired',
      'idempotency_claimed',
      'circuit_closed',
      'task_executed',
    ]);
  });

  it('one that is aborted: no sample, permit and lease are given back, and the key is free once it has said that it gave up', async () => {
    const app = await boot({ providers: [Jobs] }, { shutdownTimeout: '20ms' });
    const jobs = app.get(Jobs);
    jobs.body = untilAborted;
    await app.store.set(keys.circuit, DUE, FOREVER);
    const call = errorOf(jobs.run(order));
    await app.clock.advance(0);
    await app.module.close();
    await expect(call).resolves.toBeInstanceOf(ShuttingDownError);
    expect(jobs.runs).toBe(1);
    expect(await tracesOf(app, keys)).toMatchObject({
      circuit: 'half_open',
      lease: undefined,
      claim: undefined,
      quota: 1,
    });
    expect(app.telemetry.names.slice(-2)).toEqual(['idempotency_claimed', 'task_executed']);
  });

  it('one that hears nothing: permit and lease are given back, and its claim is left to run out', async () => {
    const app = await boot({ providers: [Jobs] }, { shutdownTimeout: '20ms' });
    const door = new Door();
    const jobs = app.get(Jobs);
    jobs.body = () => door.pass();
    await app.store.set(keys.circuit, DUE, FOREVER);
    const call = errorOf(jobs.run(order));
    await app.clock.advance(0);
    await app.module.close();
    const records = app.get(IdempotencyRecords);
    expect(await tracesOf(app, keys)).toMatchObject({
      circuit: 'half_open',
      lease: undefined,
      claim: 'in_progress',
    });
    // Another application on the same store is let in by the breaker, and not by the claim.
    const next = await boot({ providers: [Jobs] }, { store: app.store, clock: app.clock });
    await app.clock.advance('2m');
    expect(await records.inspect(keys.claim)).toMatchObject({ state: 'abandoned' });
    await expect(next.get(Jobs).run(order)).rejects.toMatchObject({ code: 'abandoned' });
    await expect(next.get(Jobs).run({ ...order, reference: 'other' })).resolves.toBe('done');
    expect(await app.get(CircuitBreakers).inspect(keys.circuit)).toMatchObject({
      state: 'closed',
    });

    // It ends long after: what it has done is known from then on, and nothing else is changed.
    const before = await app.get(CircuitBreakers).inspect(keys.circuit);
    door.open();
    await call;
    expect(await records.inspect(keys.claim)).toMatchObject({ state: 'done' });
    expect(await app.get(CircuitBreakers).inspect(keys.circuit)).toEqual(before);
  });

  it('one that sleeps before it repeats its body is not repeated: the caller gets what it threw last', async () => {
    const app = await boot({ providers: [Jobs] }, { shutdownTimeout: '20ms' });
    const jobs = app.get(Jobs);
    const flaky = new Flaky();
    jobs.body = () => Promise.reject(flaky);
    await app.store.set(keys.circuit, DUE, FOREVER);
    const call = errorOf(jobs.run(order));
    await app.clock.advance('1s');
    expect(app.telemetry.names.at(-1)).toBe('task_retried');
    await app.module.close();
    await expect(call).resolves.toBe(flaky);
    expect(jobs.runs).toBe(1);
    expect(await tracesOf(app, keys)).toMatchObject({
      circuit: 'half_open',
      calls: 0,
      failures: 0,
      lease: undefined,
      claim: undefined,
    });
    expect(app.clock.pending).toBe(0);
  });

  it.each([
    ['at the lock', keys.lock, 'somebody'],
    ['at the claim', keys.claim, 'p:1:9007199254740991:somebody::'],
  ])('one that waits %s is told at once, and holds nothing', async (_place, key, theirs) => {
    const app = await boot({ providers: [Jobs] }, { shutdownTimeout: '10s' });
    const jobs = app.get(Jobs);
    await app.store.set(keys.circuit, DUE, FOREVER);
    await app.store.set(key, theirs, FOREVER);
    const call = errorOf(jobs.run(order));
    await app.clock.advance('1s');
    await settledWithin(2_000, app.module.close());
    await expect(call).resolves.toMatchObject({ code: 'shutting_down', status: 503 });
    expect(jobs.runs).toBe(0);
    expect(await app.store.get(key)).toBe(theirs);
    expect(await tracesOf(app, keys)).toMatchObject({
      circuit: 'half_open',
      lease: key === keys.lock ? 'somebody' : undefined,
      quota: 1,
    });
    expect(app.telemetry.names.at(-1)).toBe('task_executed');
  });

  it('on Redis: what was held is free before the connection ends, and another process is let in', async () => {
    const redis = await startRedis();
    try {
      const here = await bootOnRedis(redis.url, [Jobs], { shutdownTimeout: '20ms' });
      const there = await bootOnRedis(redis.url, [Jobs]);
      const door = new Door();
      here.get(Jobs).body = () => door.pass();
      await there.store.set(keys.circuit, DUE, FOREVER);
      const call = errorOf(here.get(Jobs).run(order));
      await until(() => door.inside === 1, 'the body');
      await expect(
        there.get(Jobs).run({ ...order, account: 'other', reference: 'other' }),
      ).rejects.toMatchObject({ code: 'circuit_open' });
      await here.close();

      expect(await tracesOf(there, keys)).toMatchObject({
        circuit: 'half_open',
        lease: undefined,
        claim: 'in_progress',
        quota: 2,
      });
      await expect(there.get(Jobs).run({ ...order, reference: 'other' })).resolves.toBe('done');
      expect(await tracesOf(there, keys)).toMatchObject({ circuit: 'closed', lease: undefined });
      door.open();
      await call;
      await there.close();
    } finally {
      await redis.stop();
    }
  });
});
