import { getEventListeners } from 'node:events';
import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  currentInvocation,
  IdempotencyRecords,
  IdempotentBy,
  LockWith,
  RetryOn,
  SystemClock,
} from 'nestjs-cmdx';
import { ManualClock } from 'nestjs-cmdx/testing';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { settledWithin, until } from '../../support/time.js';

closeApplicationsAfterEach();

class Flaky extends Error {}

/** Remembers, from inside the body, the signal, and tells when it aborts. */
class Witness {
  runs = 0;
  readonly thrown: Flaky[] = [];
  signal: AbortSignal | undefined;
  readonly aborted: Promise<void>;
  #onAbort = (): void => undefined;

  constructor() {
    this.aborted = new Promise((resolve) => (this.#onAbort = resolve));
  }

  look(): void {
    this.runs += 1;
    const signal = currentInvocation()?.signal;
    if (!signal || signal === this.signal) return;
    this.signal = signal;
    signal.addEventListener('abort', () => this.#onAbort(), { once: true });
  }

  fail(): never {
    const error = new Flaky(`attempt ${this.runs}`);
    this.thrown.push(error);
    throw error;
  }
}

@Injectable()
class Jobs {
  readonly witness = new Witness();
  readonly door = new Door();
  readonly gate = new Door();

  @RetryOn(Flaky, { delay: '10s' })
  async sleeping(): Promise<void> {
    this.witness.look();
    this.witness.fail();
  }

  @IdempotentBy('one', { lease: '3s' })
  @RetryOn(Flaky, { delay: '10s' })
  async claimed(): Promise<void> {
    this.witness.look();
    this.witness.fail();
  }

  @IdempotentBy('one', { lease: '3s' })
  @RetryOn(Error, { delay: 0 })
  async working(): Promise<void> {
    this.witness.look();
    await this.door.pass();
    this.witness.fail();
  }

  @IdempotentBy('one', { lease: '3s' })
  @RetryOn(Flaky, { delay: 0, if: 'passesGate' })
  async gated(): Promise<void> {
    this.witness.look();
    this.witness.fail();
  }

  async passesGate(): Promise<boolean> {
    await this.gate.pass();
    return true;
  }
}

/** Sleeps to the end, whatever becomes of the call. */
class DeafClock extends ManualClock {
  override sleep(ms: number): Promise<void> {
    return super.sleep(ms);
  }
}

/** With what a call was rejected. */
function rejectionOf(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    () => {
      throw new Error('expected a rejection, got a value');
    },
    (error: unknown) => error,
  );
}

/** The same, and from the abort of its signal on it took no longer than that. */
async function promptRejectionOf(call: Promise<unknown>, { aborted }: Witness): Promise<unknown> {
  const rejection = rejectionOf(call);
  await aborted;
  return settledWithin(20, rejection);
}

describe('does an abort end a sleep of 10 s at once?', () => {
  it('yes, when the application shuts down: within 20 ms, with the error of the body', async () => {
    const { get, telemetry, close } = await boot(
      { providers: [Jobs] },
      { clock: new SystemClock(), shutdownTimeout: '50ms' },
    );
    const { witness } = get(Jobs);
    const rejection = promptRejectionOf(get(Jobs).sleeping(), witness);
    await until(() => telemetry.of('task_retried').length > 0, 'the sleep');
    const closed = close();
    expect(await rejection).toBe(witness.thrown[0]);
    await closed;
    expect(witness.runs).toBe(1);
    expect(witness.signal?.aborted).toBe(true);
  });

  it('yes, when the claim is lost: within 20 ms, long before the sleep would have ended', async () => {
    const { get, clock, telemetry, module } = await boot({ providers: [Jobs] });
    const { witness } = get(Jobs);
    const rejection = promptRejectionOf(get(Jobs).claimed(), witness);
    await clock.advance('1s');
    expect(telemetry.of('task_retried')).toHaveLength(1);
    await module.get(IdempotencyRecords).forget('cmdx:idem:Jobs.claimed:one');
    await clock.advance('1s');
    expect(await rejection).toBe(witness.thrown[0]);
    expect(clock.now()).toBe(2_000);
    expect(witness.signal?.reason).toMatchObject({ name: 'LeaseLostError' });
    // It was told before the sleep, but no repetition has begun.
    const { result } = telemetry.of('task_executed')[0]?.payload ?? {};
    expect(result).toMatchObject({ status: 'failed', retries: 0, cause: witness.thrown[0] });
    await clock.advance('60s');
    expect(witness.runs).toBe(1);
  });
});

describe('does an attempt start once the signal has aborted?', () => {
  it('no: not after a body that fails with what is listed', async () => {
    const { get, clock, telemetry, module } = await boot({ providers: [Jobs] });
    const { witness, door } = get(Jobs);
    const rejection = rejectionOf(get(Jobs).working());
    await clock.advance('1s');
    await module.get(IdempotencyRecords).forget('cmdx:idem:Jobs.working:one');
    await clock.advance('1s');
    expect(witness.signal?.aborted).toBe(true);
    door.open();
    expect(await rejection).toBe(witness.thrown[0]);
    expect(witness.runs).toBe(1);
    expect(telemetry.names).not.toContain('task_retried');
  });

  it('no: not when it aborted while a gate was thinking', async () => {
    const { get, clock, telemetry, module } = await boot({ providers: [Jobs] });
    const { witness, gate } = get(Jobs);
    const rejection = rejectionOf(get(Jobs).gated());
    await clock.advance('1s');
    expect(gate.inside).toBe(1);
    await module.get(IdempotencyRecords).forget('cmdx:idem:Jobs.gated:one');
    await clock.advance('1s');
    gate.open();
    expect(await rejection).toBe(witness.thrown[0]);
    expect(witness.runs).toBe(1);
    expect(telemetry.names).not.toContain('task_retried');
  });

  it('no: not after a sleep on a clock that hears of no signal', async () => {
    const clock = new DeafClock();
    const { get, telemetry, module } = await boot({ providers: [Jobs] }, { clock });
    const { witness } = get(Jobs);
    const rejection = rejectionOf(get(Jobs).claimed());
    await clock.advance('1s');
    expect(telemetry.of('task_retried')).toHaveLength(1);
    await module.get(IdempotencyRecords).forget('cmdx:idem:Jobs.claimed:one');
    await clock.advance('20s');
    expect(await rejection).toBe(witness.thrown[0]);
    expect(witness.runs).toBe(1);
  });
});

/** Remembers every signal with which somebody slept. */
class WatchedClock extends SystemClock {
  readonly signals = new Set<AbortSignal>();

  override sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (signal) this.signals.add(signal);
    return super.sleep(ms, signal);
  }
}

describe('does a sleep leave a listener on its signal?', () => {
  const MANY = 10_000;
  const ROUNDS = 10;

  const listening = ({ signals }: WatchedClock): number =>
    [...signals].flatMap((signal) => getEventListeners(signal, 'abort')).length;

  @Injectable()
  class Busy {
    runs = 0;

    @RetryOn(Flaky, { delay: 1, limit: MANY })
    async one(): Promise<AbortSignal | undefined> {
      this.runs += 1;
      if (this.runs <= MANY) throw new Flaky();
      return currentInvocation()?.signal;
    }

    @RetryOn(Flaky, { delay: '1ms', limit: 200 })
    async really(): Promise<AbortSignal | undefined> {
      this.runs += 1;
      if (this.runs <= 200) throw new Flaky();
      return currentInvocation()?.signal;
    }

    @RetryOn(Flaky, { delay: '1ms', limit: 1 })
    async each(): Promise<void> {
      throw new Flaky();
    }

    @LockWith('one', { wait: '20ms', onBusy: 'skip' })
    async locked(door?: Door): Promise<void> {
      await door?.pass();
    }
  }

  it('no: none after 10,000 sleeps on one signal', async () => {
    const { get, clock } = await boot({ providers: [Busy] });
    const call = get(Busy).one();
    await clock.advance(MANY);
    const signal = (await call) as AbortSignal;
    expect(get(Busy).runs).toBe(MANY + 1);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    expect(clock.pending).toBe(0);
  });

  it('no: none on the system’s clock', async () => {
    const clock = new WatchedClock();
    const { get } = await boot({ providers: [Busy] }, { clock });
    const signal = (await get(Busy).really()) as AbortSignal;
    expect([...clock.signals]).toEqual([signal]);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  it('no: none after 10,000 calls that slept at the same time', async () => {
    const clock = new WatchedClock();
    const { get } = await boot({ providers: [Busy] }, { clock });
    const calls = Array.from({ length: MANY }, () => get(Busy).each());
    const settled = await Promise.allSettled(calls);
    expect(settled.every(({ status }) => status === 'rejected')).toBe(true);
    expect(clock.signals.size).toBe(MANY);
    expect(listening(clock)).toBe(0);
  });

  it('no: none after 10,000 calls that waited for a lock, all on one signal', async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): unknown => warnings.push(warning);
    process.on('warning', onWarning);
    const clock = new WatchedClock();
    const { get } = await boot({ providers: [Busy] }, { clock });
    const door = new Door();
    const holder = get(Busy).locked(door);
    const counts: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const calls = Array.from({ length: MANY / ROUNDS }, () => get(Busy).locked());
      const settled = Promise.all(calls);
      await until(() => clock.signals.size > 0, 'somebody waits');
      counts.push(listening(clock));
      await settled;
    }
    expect(counts.every((count) => count > 1)).toBe(true);
    expect(clock.signals.size).toBe(1);
    expect(listening(clock)).toBe(0);
    door.open();
    await holder;
    process.off('warning', onWarning);
    expect(warnings).toEqual([]);
  }, 20_000);
});
