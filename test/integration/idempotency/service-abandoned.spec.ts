import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  AbandonedError,
  arg,
  currentInvocation,
  IdempotentBy,
  isLeaseLostError,
  MemoryStore,
} from 'nestjs-cmdx';
import { ManualClock } from 'nestjs-cmdx/testing';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { DEAD_OWNER, leaveClaimOfTheDead } from '../../support/dead-owner.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

const KEY = 'cmdx:idem:Orders.ship:1';

@Injectable()
class Orders {
  runs = 0;
  signal: AbortSignal | undefined;
  end: 'return' | 'throw' = 'return';

  constructor(readonly door: Door) {}

  @IdempotentBy(arg(0), { lease: 10, ttl: 60 })
  async ship(_id: string): Promise<string> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { lease: 10, ttl: 60, onAbandoned: 'rerun', name: 'Orders.ship' })
  async shipAgain(_id: string): Promise<string> {
    return this.#ship();
  }

  async #ship(): Promise<string> {
    this.runs += 1;
    this.signal = currentInvocation()?.signal;
    await this.door.pass();
    if (this.end === 'throw') throw new Error('too late');
    return `run ${currentInvocation()?.tid}`;
  }
}

async function bootOrders(options: Parameters<typeof boot>[1] = {}) {
  const application = await boot({ providers: [Door, Orders] }, options);
  return { ...application, orders: application.get(Orders) };
}

describe('What does a call get after a run that never told how it ended?', () => {
  it('in_progress until its lease lapses, then an error that names both cures', async () => {
    const { orders, store, clock } = await bootOrders();
    await leaveClaimOfTheDead(store, KEY, { leaseMs: 10_000, ttlMs: 60_000 });
    await clock.advance('9999ms');
    await expect(orders.ship('1')).rejects.toMatchObject({ code: 'in_progress' });
    await clock.advance('1ms');
    const error: unknown = await orders.ship('1').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(AbandonedError);
    expect(error).toMatchObject({
      status: 409,
      metadata: { code: 'abandoned', idempotencyKey: KEY, run: 1, holder: DEAD_OWNER },
    });
    expect(String(error)).toContain('forget(key)');
    expect(String(error)).toContain("'rerun'");
    expect(orders.runs).toBe(0);
  });

  it('that error for the ttl; then nothing is known of it any more', async () => {
    const { orders, store, clock } = await bootOrders();
    orders.door.open();
    await leaveClaimOfTheDead(store, KEY, { leaseMs: 10_000, ttlMs: 60_000 });
    await clock.advance('69999ms');
    await expect(orders.ship('1')).rejects.toMatchObject({ code: 'abandoned' });
    await clock.advance('1ms');
    await expect(orders.ship('1')).resolves.toContain('run ');
  });

  it('with rerun the next run, whose answer is kept', async () => {
    const { orders, store, clock, telemetry } = await bootOrders();
    orders.door.open();
    await leaveClaimOfTheDead(store, KEY, { leaseMs: 10_000 });
    await clock.advance('9999ms');
    await expect(orders.shipAgain('1')).rejects.toMatchObject({ code: 'in_progress' });
    await clock.advance('1ms');
    const answer = await orders.shipAgain('1');
    expect(telemetry.of('idempotency_claimed')[0]?.payload).toEqual({
      idempotencyKey: KEY,
      run: 2,
    });
    expect(await orders.shipAgain('1')).toBe(answer);
    expect(telemetry.of('idempotency_duplicate')[0]?.payload).toMatchObject({ run: 2 });
    expect(orders.runs).toBe(1);
  });
});

describe('What becomes of an owner that was only silent?', () => {
  /**
   * Two processes on one store: the clock of the first stands still, so it renews nothing, as if it
   * were stopped; the store follows the clock of the second.
   */
  async function withSilentOwner() {
    const store = new MemoryStore();
    const silent = await bootOrders({ store, clock: new ManualClock() });
    const first = silent.orders.ship('1');
    const clock = new ManualClock();
    const other = await bootOrders({ store, clock });
    return { store, silent, first, other, clock };
  }

  it('its answer counts when nobody has taken over', async () => {
    const { silent, first, other, clock } = await withSilentOwner();
    await clock.advance('11s');
    await expect(other.orders.ship('1')).rejects.toMatchObject({ code: 'abandoned' });
    silent.orders.door.open();
    const answer = await first;
    expect(await other.orders.ship('1')).toBe(answer);
    expect(silent.telemetry.names).not.toContain('idempotency_stale');
  });

  it('even when it was forgotten meanwhile, and nobody began anew', async () => {
    const { store, silent, first, other, clock } = await withSilentOwner();
    await clock.advance('71s');
    expect(await store.get(KEY)).toBeUndefined();
    silent.orders.door.open();
    const answer = await first;
    expect(await other.orders.ship('1')).toBe(answer);
  });

  it.each(['return', 'throw'] as const)(
    'whatever it does (%s) changes nothing once another has taken over',
    async (end) => {
      const { store, silent, first, other, clock } = await withSilentOwner();
      silent.orders.end = end;
      await clock.advance('11s');
      const second = other.orders.shipAgain('1');
      const claimed = await store.get(KEY);
      expect(claimed).toMatch(/^p:2:/);
      silent.orders.door.open();
      const outcome = await first.catch((error: Error) => error.message);
      expect(outcome).toMatch(end === 'return' ? /^run / : /^too late$/);
      expect(await store.get(KEY)).toBe(claimed);
      expect(silent.telemetry.of('idempotency_stale').map(({ payload }) => payload)).toEqual([
        { idempotencyKey: KEY, run: 1 },
      ]);
      other.orders.door.open();
      const newer = await second;
      expect(newer).not.toBe(outcome);
      expect(await other.orders.ship('1')).toBe(newer);
    },
  );

  it('its signal aborts when it comes to and asks for its claim', async () => {
    const store = new MemoryStore();
    const silentClock = new ManualClock();
    const silent = await bootOrders({ store, clock: silentClock });
    const first = silent.orders.ship('1');
    const clock = new ManualClock();
    const other = await bootOrders({ store, clock });
    await clock.advance('11s');
    const second = other.orders.shipAgain('1');
    expect(silent.orders.signal?.aborted).toBe(false);
    await silentClock.advance('4s');
    expect(silent.orders.signal?.aborted).toBe(true);
    const reason: unknown = silent.orders.signal?.reason;
    expect(isLeaseLostError(reason)).toBe(true);
    expect(reason).toMatchObject({
      code: 'lease_lost',
      task: 'Orders.ship',
      policy: 'idempotency',
    });
    expect(other.orders.signal?.aborted).toBe(false);
    silent.orders.door.open();
    other.orders.door.open();
    await Promise.all([first, second]);
  });
});
