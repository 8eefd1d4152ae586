import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  AbandonedError,
  arg,
  DuplicateError,
  IdempotencyRecords,
  IdempotentBy,
  isDefinitionError,
  LockWith,
  MemoryStore,
  RateLimit,
  StoreError,
  StoreKey,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { DEAD_OWNER, leaveClaimOfTheDead } from '../../support/dead-owner.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

@Injectable()
class Orders {
  runs = 0;

  constructor(readonly door: Door) {}

  @IdempotentBy(arg(0), { lease: 30, ttl: '1h' })
  async ship(id: string): Promise<string> {
    this.runs += 1;
    const run = this.runs;
    await this.door.pass();
    return `${id}, run ${run}`;
  }

  @IdempotentBy(arg(0), { ttl: '1h', maxBytes: 0 })
  async unkept(_id: string): Promise<void> {}

  @RateLimit(arg(0), { max: 5, per: 60 })
  @RateLimit(arg(0), { limiter: 'leaky_bucket', max: 5, per: 60 })
  @LockWith(arg(0))
  async locked(_id: string, door: Door): Promise<void> {
    await door.pass();
  }
}

const KEY = StoreKey.compose('cmdx:idem', 'Orders.ship', '1');

async function bootOrders(options: Parameters<typeof boot>[1] = {}) {
  const application = await boot({ providers: [Door, Orders] }, options);
  return {
    ...application,
    orders: application.get(Orders),
    records: application.get(IdempotencyRecords),
  };
}

describe('What does inspect tell about a key?', () => {
  it('nothing, before its first call and after its ttl', async () => {
    const { records, orders, clock } = await bootOrders();
    expect(await records.inspect(KEY)).toBeUndefined();
    orders.door.open();
    await orders.ship('1');
    await clock.advance('1h');
    expect(await records.inspect(KEY)).toBeUndefined();
  });

  it('in_progress, who is at work, and how much is left of the lease', async () => {
    const { records, orders, clock, telemetry } = await bootOrders();
    const first = orders.ship('1');
    await clock.advance('9s');
    expect(await records.inspect(KEY)).toEqual({
      state: 'in_progress',
      run: 1,
      tid: telemetry.of('idempotency_claimed')[0]?.tid,
      remainingTtl: 3_621,
      remainingLease: 21,
    });
    orders.door.open();
    await first;
  });

  it('done, by the key that an error and an event name', async () => {
    const { records, orders, clock, telemetry } = await bootOrders();
    orders.door.open();
    await orders.ship('1');
    await clock.advance('15m');
    const [claimed] = telemetry.of('idempotency_claimed');
    expect(await records.inspect(claimed?.payload.idempotencyKey as string)).toEqual({
      state: 'done',
      run: 1,
      tid: claimed?.tid,
      remainingTtl: 2_700,
    });
  });

  it('a tombstone, where no answer was kept', async () => {
    const { records, orders } = await bootOrders();
    await orders.unkept('1');
    const error: unknown = await orders.unkept('1').catch((thrown: unknown) => thrown);
    const { metadata } = error as DuplicateError;
    expect(await records.inspect(metadata.idempotencyKey)).toEqual({
      state: 'tombstone',
      run: 1,
      tid: metadata.holder,
      remainingTtl: 3_600,
    });
  });

  it('abandoned, from the moment at which the lease has lapsed', async () => {
    const { records, store, clock } = await bootOrders();
    await leaveClaimOfTheDead(store, KEY, { leaseMs: 30_000, ttlMs: 3_600_000 });
    await clock.advance('29999ms');
    expect(await records.inspect(KEY)).toMatchObject({ remainingLease: 0.001 });
    await clock.advance('1ms');
    expect(await records.inspect(KEY)).toEqual({
      state: 'abandoned',
      run: 1,
      tid: DEAD_OWNER,
      remainingTtl: 3_600,
    });
  });
});

describe('What may be forgotten?', () => {
  it('what is done: the next call is the first again', async () => {
    const { records, orders } = await bootOrders();
    orders.door.open();
    await orders.ship('1');
    expect(await records.forget(KEY)).toBe(true);
    expect(await records.forget(KEY)).toBe(false);
    await expect(orders.ship('1')).resolves.toBe('1, run 2');
    expect(await records.inspect(KEY)).toMatchObject({ state: 'done', run: 1 });
  });

  it('what was abandoned, by the key that the error names', async () => {
    const { records, orders, store, clock } = await bootOrders();
    orders.door.open();
    await leaveClaimOfTheDead(store, KEY, { leaseMs: 30_000 });
    await clock.advance('30s');
    const error: unknown = await orders.ship('1').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(AbandonedError);
    expect(await records.forget((error as AbandonedError).metadata.idempotencyKey)).toBe(true);
    await expect(orders.ship('1')).resolves.toBe('1, run 1');
  });

  it('what is in progress: its end is remembered late, if nobody began anew', async () => {
    const { records, orders } = await bootOrders();
    const first = orders.ship('1');
    expect(await records.forget(KEY)).toBe(true);
    orders.door.open();
    await expect(first).resolves.toBe('1, run 1');
    await expect(orders.ship('1')).resolves.toBe('1, run 1');
  });

  it('and never over a run that did begin anew', async () => {
    const { records, orders, telemetry } = await bootOrders();
    const first = orders.ship('1');
    await records.forget(KEY);
    const second = orders.ship('1');
    const firstTid = telemetry.of('idempotency_claimed')[0]?.tid;
    orders.door.open();
    await expect(Promise.all([first, second])).resolves.toEqual(['1, run 1', '1, run 2']);
    expect(telemetry.of('idempotency_stale')).toMatchObject([{ tid: firstTid }]);
    await expect(orders.ship('1')).resolves.toBe('1, run 2');
  });

  it('nothing that is no record of idempotency', async () => {
    const { records, orders, store } = await bootOrders();
    const door = new Door();
    const holding = orders.locked('1', door);
    await store.set('cmdx:text', 'p:1', { ttl: 60 });
    for (const key of ['cmdx:lock:Orders.locked:1', 'cmdx:rl:Orders.locked:1:lb', 'cmdx:text']) {
      const before = await store.get(key);
      expect([key, before]).toEqual([key, expect.any(String)]);
      expect(await records.inspect(key)).toBeUndefined();
      expect(await records.forget(key)).toBe(false);
      expect(await store.get(key)).toBe(before);
    }
    door.open();
    await holding;
  });
});

describe('What is no question?', () => {
  it.each([[''], [undefined], [null], [5], [{}]])('a key such as %p', async (key) => {
    const { records } = await bootOrders();
    for (const method of ['inspect', 'forget'] as const) {
      const error: unknown = await records[method](key as string).catch(
        (thrown: unknown) => thrown,
      );
      expect(isDefinitionError(error)).toBe(true);
      expect(String(error)).toMatch(
        new RegExp(`IdempotencyRecords\\.${method}: expected a store key, got .+`),
      );
    }
  });

  it('one to a store that does not answer: its error is passed on', async () => {
    class Down extends MemoryStore {
      override async inspect(): Promise<never> {
        throw new StoreError('disconnected', 'down');
      }
    }
    const { records } = await bootOrders({ store: new Down() });
    await expect(records.inspect(KEY)).rejects.toMatchObject({ reason: 'disconnected' });
    await expect(records.forget(KEY)).rejects.toMatchObject({ reason: 'disconnected' });
  });
});
