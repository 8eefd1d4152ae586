import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { arg, IdempotentBy, type Result, resultOf } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { DEAD_OWNER, leaveClaimOfTheDead } from '../../support/dead-owner.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

@Injectable()
class Orders {
  constructor(readonly door: Door) {}

  @IdempotentBy(arg(0), { name: 'order', fingerprint: (_id: string, payload?: unknown) => payload })
  async ship(id: string, _payload?: unknown): Promise<string> {
    await this.door.pass();
    return `shipped ${id}`;
  }

  @IdempotentBy(arg(0), { name: 'order', onDuplicate: 'skip' })
  async skips(_id: string): Promise<string | undefined> {
    return 'skips';
  }

  @IdempotentBy(arg(0), { name: 'order', onDuplicate: 'fail' })
  async fails(_id: string): Promise<string> {
    return 'fails';
  }

  @IdempotentBy(arg(0), { name: 'order', onInProgress: 'skip' })
  async skipsInProgress(_id: string): Promise<string | undefined> {
    return 'skips';
  }

  @IdempotentBy(arg(0), { name: 'order', onInProgress: 'wait', wait: 20 })
  async waits(_id: string): Promise<string> {
    return 'waits';
  }
}

const KEY = 'cmdx:idem:order:1';

async function bootOrders() {
  const application = await boot({ providers: [Door, Orders] });
  const orders = application.get(Orders);
  orders.door.open();
  return {
    ...application,
    orders,
    /** The tid of the first call that claimed a key. */
    first: () => application.telemetry.of('idempotency_claimed')[0]?.tid,
    /** The payload of the last event that is neither the beginning nor the end of a run. */
    told: () => application.telemetry.events.at(-2)?.payload,
  };
}

function assertSound(result: Result): void {
  expect(Object.isFrozen(result)).toBe(true);
  expect(Object.isFrozen(result.metadata)).toBe(true);
  expect([result.ok, result.ko]).toEqual([result.status !== 'failed', result.status !== 'success']);
  expect(result.state).toBe(result.status === 'success' ? 'complete' : 'interrupted');
  expect(result.retries).toBe(0);
}

describe('What is the Result of a call, where its work is done once?', () => {
  it('of the first a success, which adds nothing of the claim', async () => {
    const { cmdx, orders, first } = await bootOrders();
    const result = await cmdx.execute(() => orders.ship('1'));
    assertSound(result);
    expect(result).toMatchObject({
      status: 'success',
      value: 'shipped 1',
      reason: undefined,
      metadata: {},
      cause: undefined,
      task: 'Orders.ship',
      tid: first(),
      durationMs: 0,
    });
    expect(result.metadata).toEqual({});
  });

  it('of a duplicate a skip, with the code, the facts and the value that its caller got', async () => {
    const { cmdx, orders, first, told } = await bootOrders();
    await orders.ship('1');
    const result = await cmdx.execute(() => orders.ship('1'));
    assertSound(result);
    expect(result).toMatchObject({ status: 'skipped', value: 'shipped 1', reason: 'duplicate' });
    expect(result.cause).toBeUndefined();
    expect(result.metadata).toEqual({
      code: 'duplicate',
      onDuplicate: 'replay',
      replayable: true,
      idempotencyKey: KEY,
      run: 1,
      holder: first(),
    });
    expect(told()).toEqual(result.metadata);
    expect(result.tid).not.toBe(first());
  });

  it('of a duplicate that is skipped a skip without a value', async () => {
    const { cmdx, orders, told } = await bootOrders();
    await orders.ship('1');
    const result = await cmdx.execute(() => orders.skips('1'));
    assertSound(result);
    expect(result).toMatchObject({ status: 'skipped', value: undefined, reason: 'duplicate' });
    expect(result.metadata).toMatchObject({ onDuplicate: 'skip', replayable: true });
    expect(told()).toEqual(result.metadata);
  });

  it('of a duplicate that fails a failure, with the error that its caller would get', async () => {
    const { cmdx, orders, told } = await bootOrders();
    await orders.ship('1');
    const result = await cmdx.execute(() => orders.fails('1'));
    assertSound(result);
    expect(result).toMatchObject({ status: 'failed', value: undefined, cause: { status: 409 } });
    expect(result.reason).toContain('Orders.fails: the work of this key is done');
    expect(result.metadata).toMatchObject({ code: 'duplicate', onDuplicate: 'fail' });
    expect(told()).toEqual(result.metadata);
    expect(resultOf(result.cause)).toBe(result);
  });

  it('of one in progress what onInProgress says', async () => {
    const { get, cmdx, clock, telemetry, store } = await boot({ providers: [Door, Orders] });
    const orders = get(Orders);
    const owner = orders.ship('1');
    const holder = telemetry.of('idempotency_claimed')[0]?.tid;
    const facts = { code: 'in_progress', idempotencyKey: KEY, run: 1, holder };
    const skipped = await cmdx.execute(() => orders.skipsInProgress('1'));
    assertSound(skipped);
    expect(skipped).toMatchObject({ status: 'skipped', reason: 'in_progress', value: undefined });
    expect(skipped.metadata).toEqual({ ...facts, onInProgress: 'skip', retryAfter: 60 });
    const failed = await cmdx.execute(() => orders.ship('1'));
    assertSound(failed);
    expect(failed).toMatchObject({ status: 'failed', cause: { code: 'in_progress' } });
    expect(failed.metadata).toEqual({ ...facts, onInProgress: 'fail', retryAfter: 60 });
    const waiting = cmdx.execute(() => orders.waits('1'));
    await clock.advance('30s');
    const waited = await waiting;
    assertSound(waited);
    expect(waited).toMatchObject({ status: 'failed', durationMs: 20_000 });
    expect(telemetry.of('idempotency_in_progress').map(({ payload }) => payload)).toEqual(
      [skipped, failed, waited].map(({ metadata }) => metadata),
    );
    expect(await store.get(KEY)).toMatch(/^p:1:/);
    orders.door.open();
    await owner;
  });

  it('of one that waited for its answer how long that took', async () => {
    const { get, cmdx, clock } = await boot({ providers: [Door, Orders] });
    const orders = get(Orders);
    const owner = orders.ship('1');
    const waiting = cmdx.execute(() => orders.waits('1'));
    await clock.advance('10s');
    orders.door.open();
    await owner;
    await clock.advance('1s');
    const result = await waiting;
    expect(result).toMatchObject({ status: 'skipped', value: 'shipped 1' });
    expect(result.durationMs).toBeGreaterThanOrEqual(10_000);
    expect(result.durationMs).toBeLessThanOrEqual(10_200);
  });

  it('of an abandoned one a failure', async () => {
    const { cmdx, orders, store, clock, told } = await bootOrders();
    await leaveClaimOfTheDead(store, KEY, { leaseMs: 1_000 });
    await clock.advance('1s');
    const result = await cmdx.execute(() => orders.ship('1'));
    assertSound(result);
    expect(result).toMatchObject({ status: 'failed', cause: { code: 'abandoned' } });
    expect(result.metadata).toEqual({
      code: 'abandoned',
      idempotencyKey: KEY,
      run: 1,
      holder: DEAD_OWNER,
    });
    expect(told()).toEqual(result.metadata);
  });

  it('of another payload a failure, also where duplicates and work in progress are skipped', async () => {
    const { cmdx, orders, first, told } = await bootOrders();
    await orders.ship('1', { amount: 5 });
    const result = await cmdx.execute(() => orders.ship('1', { amount: 6 }));
    assertSound(result);
    expect(result).toMatchObject({ status: 'failed', cause: { status: 422 } });
    expect(result.metadata).toEqual({
      code: 'payload_mismatch',
      idempotencyKey: KEY,
      run: 1,
      holder: first(),
    });
    expect(told()).toEqual(result.metadata);
  });

  it('and every one of them is what task_executed tells', async () => {
    const { cmdx, orders, telemetry } = await bootOrders();
    const results: Result[] = [];
    results.push(await cmdx.execute(() => orders.ship('1')));
    results.push(await cmdx.execute(() => orders.ship('1')));
    results.push(await cmdx.execute(() => orders.skips('1')));
    results.push(await cmdx.execute(() => orders.fails('1')));
    const told = telemetry.of('task_executed').map(({ payload }) => payload.result);
    expect(told).toHaveLength(results.length);
    for (const [position, result] of results.entries()) expect(told[position]).toBe(result);
  });
});
