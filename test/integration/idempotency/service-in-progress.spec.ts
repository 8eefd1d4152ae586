import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { arg, IdempotentBy, InProgressError, SystemClock } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { DEAD_OWNER, leaveClaimOfTheDead } from '../../support/dead-owner.js';
import { Door } from '../../support/door.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
refuseUnhandledRejections();

const KEY = 'cmdx:idem:order:1';
const BOOM = new Error('boom');

/** What a body does between its start and its end. */
type Work = () => unknown;
const atOnce: Work = () => undefined;

@Injectable()
class Orders {
  runs = 0;

  @IdempotentBy(arg(0), { name: 'order' })
  async fails(_id: string, work: Work = atOnce): Promise<number> {
    return this.#ship(work);
  }

  @IdempotentBy(arg(0), { name: 'order', onInProgress: 'skip' })
  async skips(_id: string, work: Work = atOnce): Promise<number | undefined> {
    return this.#ship(work);
  }

  @IdempotentBy(arg(0), { name: 'order', onInProgress: 'wait', wait: 5 })
  async waits(_id: string, work: Work = atOnce): Promise<number> {
    return this.#ship(work);
  }

  @IdempotentBy(arg(0), { name: 'order', onInProgress: 'wait' })
  async waitsByDefault(_id: string, work: Work = atOnce): Promise<number> {
    return this.#ship(work);
  }

  @IdempotentBy(arg(0), { name: 'order', onInProgress: 'wait', wait: '2m', onAbandoned: 'rerun' })
  async waitsOrReruns(_id: string, work: Work = atOnce): Promise<number> {
    return this.#ship(work);
  }

  @IdempotentBy(arg(0), { name: 'order', onInProgress: 'wait', wait: '2m' })
  async waitsLong(_id: string, work: Work = atOnce): Promise<number> {
    return this.#ship(work);
  }

  @IdempotentBy(arg(0), { name: 'order', onInProgress: 'wait', onDuplicate: 'fail' })
  async waitsThenFails(_id: string): Promise<number> {
    return this.#ship(atOnce);
  }

  async #ship(work: Work): Promise<number> {
    this.runs += 1;
    const run = this.runs;
    await work();
    return run;
  }
}

/** Boots, and begins the work of order 1, which ends when the door opens. */
async function withOwner(end: Work = atOnce) {
  const application = await boot({ providers: [Orders] });
  const orders = application.get(Orders);
  const door = new Door();
  const owner = orders.fails('1', async () => {
    await door.pass();
    await end();
  });
  return { ...application, orders, door, owner };
}

/** When, on the manual clock, a call ended, and how. */
async function timed<T>(call: Promise<T>, now: () => number) {
  try {
    return { value: await call, at: now() };
  } catch (error) {
    return { error, at: now() };
  }
}

describe('What does a call get while the work of its key is being done?', () => {
  it('with fail an error that names the owner and what is left of its lease', async () => {
    const { orders, clock, door, owner, telemetry } = await withOwner();
    await clock.advance('10s');
    const error: unknown = await orders.fails('1').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(InProgressError);
    expect(error).toMatchObject({ code: 'in_progress', status: 409, retryAfter: 50 });
    const { metadata } = error as InProgressError;
    expect(metadata).toEqual({
      code: 'in_progress',
      onInProgress: 'fail',
      idempotencyKey: KEY,
      run: 1,
      holder: telemetry.of('idempotency_claimed')[0]?.tid,
      retryAfter: 50,
    });
    expect(telemetry.of('idempotency_in_progress')[0]?.payload).toEqual(metadata);
    door.open();
    await expect(owner).resolves.toBe(1);
    expect(orders.runs).toBe(1);
  });

  it('with skip undefined', async () => {
    const { orders, door, owner, telemetry } = await withOwner();
    await expect(orders.skips('1')).resolves.toBeUndefined();
    expect(telemetry.of('idempotency_in_progress')).toMatchObject([
      { payload: { onInProgress: 'skip' } },
    ]);
    door.open();
    await owner;
    await expect(orders.skips('1')).resolves.toBe(1);
  });

  it('another key is not in progress', async () => {
    const { orders, door, owner } = await withOwner();
    await expect(orders.fails('2')).resolves.toBe(2);
    door.open();
    await owner;
  });
});

describe('What does a call get that waits?', () => {
  it('the first answer, as soon as there is one', async () => {
    const { orders, clock, door, owner, telemetry } = await withOwner();
    const waiting = timed(orders.waits('1'), () => clock.now());
    await clock.advance('2s');
    door.open();
    await owner;
    telemetry.clear();
    await clock.advance('2s');
    const { value, at } = (await waiting) as { value: number; at: number };
    expect(value).toBe(1);
    expect(at).toBeLessThanOrEqual(2_200);
    expect(orders.runs).toBe(1);
    expect(telemetry.names).toEqual(['idempotency_duplicate', 'task_executed']);
  });

  it('what onDuplicate says of it', async () => {
    const { orders, clock, door, owner } = await withOwner();
    const waiting = timed(orders.waitsThenFails('1'), () => clock.now());
    door.open();
    await owner;
    await clock.advance('1s');
    expect(await waiting).toMatchObject({ error: { code: 'duplicate', replayable: true } });
  });

  it.each([
    ['waits', 5_000],
    ['waitsByDefault', 30_000],
  ] as const)('in_progress when its patience is used up (%s)', async (method, patience) => {
    const { orders, clock, door, owner, telemetry } = await withOwner();
    const waiting = timed(orders[method]('1'), () => clock.now());
    await clock.advance('31s');
    expect(await waiting).toMatchObject({
      at: patience,
      error: { code: 'in_progress', metadata: { onInProgress: 'wait' } },
    });
    expect(telemetry.of('idempotency_in_progress')).toHaveLength(1);
    door.open();
    await owner;
    expect(orders.runs).toBe(1);
  });

  it('a run of its own, when the owner fails', async () => {
    const { orders, clock, door, owner, store } = await withOwner(() => {
      throw BOOM;
    });
    const waiting = orders.waits('1');
    await clock.advance('1s');
    door.open();
    await expect(owner).rejects.toBe(BOOM);
    await clock.advance('1s');
    await expect(waiting).resolves.toBe(2);
    await expect(orders.fails('1')).resolves.toBe(2);
    expect(await store.get(KEY)).toMatch(/^d:1:/);
  });

  it('one of several waiters runs when the owner fails, and the others get its answer', async () => {
    const { orders, clock, door, owner } = await withOwner(() => {
      throw BOOM;
    });
    const waiting = Array.from({ length: 20 }, () => orders.waits('1'));
    await clock.advance('1s');
    door.open();
    await expect(owner).rejects.toBe(BOOM);
    await clock.advance('3s');
    await expect(Promise.all(waiting)).resolves.toEqual(Array(20).fill(2));
    expect(orders.runs).toBe(2);
  });

  it('abandoned at the moment at which the lease of a dead owner lapses', async () => {
    const { get, store, clock, telemetry } = await boot({ providers: [Orders] });
    await leaveClaimOfTheDead(store, KEY, { leaseMs: 40_000 });
    const waiting = timed(get(Orders).waitsLong('1'), () => clock.now());
    await clock.advance('60s');
    const { error, at } = (await waiting) as { error: unknown; at: number };
    expect(error).toMatchObject({
      code: 'abandoned',
      metadata: { code: 'abandoned', idempotencyKey: KEY, run: 1, holder: DEAD_OWNER },
    });
    expect(Math.floor(at)).toBe(40_000);
    expect(telemetry.of('idempotency_abandoned')).toHaveLength(1);
    expect(get(Orders).runs).toBe(0);
  });

  it('with rerun the run, at that moment', async () => {
    const { get, store, clock, telemetry } = await boot({ providers: [Orders] });
    await leaveClaimOfTheDead(store, KEY, { leaseMs: 40_000 });
    const waiting = timed(get(Orders).waitsOrReruns('1'), () => clock.now());
    await clock.advance('60s');
    const { value, at } = (await waiting) as { value: unknown; at: number };
    expect([value, Math.floor(at)]).toEqual([1, 40_000]);
    expect(telemetry.of('idempotency_claimed')).toMatchObject([{ payload: { run: 2 } }]);
  });

  it('shutting_down when the application closes, and keeps nobody waiting', async () => {
    const { orders, clock, door, owner, close } = await withOwner();
    const waiting = orders.waits('1').catch((error: unknown) => error);
    await clock.advance('1s');
    door.open();
    const closing = close();
    expect(await waiting).toMatchObject({ code: 'shutting_down' });
    await owner;
    await closing;
  });
});

describe('What do 200 simultaneous first calls get?', () => {
  it.each(['waitsByDefault', 'fails'] as const)('one run (%s)', async (method) => {
    const { get, telemetry } = await boot({ providers: [Orders] }, { clock: new SystemClock() });
    const orders = get(Orders);
    const work = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 50));
    const calls = await Promise.allSettled(
      Array.from({ length: 200 }, () => orders[method]('1', work)),
    );
    const answers = calls.map((call) => (call.status === 'fulfilled' ? call.value : call.reason));
    expect(answers.filter((answer) => answer === 1)).toHaveLength(method === 'fails' ? 1 : 200);
    const refused = answers.filter((answer) => answer instanceof InProgressError);
    expect(refused).toHaveLength(method === 'fails' ? 199 : 0);
    expect(orders.runs).toBe(1);
    expect(telemetry.names).not.toContain('store_error');
  });
});
