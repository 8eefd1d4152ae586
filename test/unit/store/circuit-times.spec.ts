import { describe, expect, it } from '@jest/globals';
import { parseCircuit } from 'nestjs-cmdx';
import { CircuitInMemory } from '../../support/circuit-steps.js';

const FAILURE = { success: false } as const;

describe('how old may a call be that is counted?', () => {
  it.each([10, 15, 99, 100, 1_001, 60_000])(
    'never as old as the window of %d ms, whenever it began',
    async (windowMs) => {
      const options = { ...FAILURE, minimumCalls: 2, windowMs };
      for (let start = 0; start < windowMs; start += Math.ceil(windowMs / 7)) {
        const circuit = new CircuitInMemory();
        await circuit.advance(start);
        circuit.outcome(options);
        await circuit.advance(windowMs);
        expect(circuit.outcome(options)).toEqual({ kind: 'outcome', state: 'counted' });
      }
    },
  );

  it('at least as old as nine tenths of it, whenever it began', async () => {
    const options = { ...FAILURE, minimumCalls: 2, windowMs: 1_000 };
    for (let start = 0; start < 1_000; start += 50) {
      const circuit = new CircuitInMemory();
      await circuit.advance(start);
      circuit.outcome(options);
      await circuit.advance(900);
      expect(circuit.outcome(options).transition).toBe('opened');
    }
  });

  it('4 failures, a while without calls, 1 failure: it stays closed', async () => {
    const circuit = new CircuitInMemory();
    const options = { ...FAILURE, minimumCalls: 5, windowMs: 5_000 };
    for (let call = 0; call < 4; call++) circuit.outcome(options);
    await circuit.advance(300_000);
    expect(circuit.outcome(options).transition).toBeUndefined();
    expect(circuit.enter()).toMatchObject({ admitted: true, state: 'closed' });
  });

  it('failures that leave the window one by one no longer count, and successes neither', async () => {
    const circuit = new CircuitInMemory();
    const options = { minimumCalls: 4, windowMs: 1_000 };
    circuit.outcome({ ...options, ...FAILURE });
    await circuit.advance(500);
    for (let call = 0; call < 3; call++) circuit.outcome(options);
    await circuit.advance(500);
    // Three successes and the failures of now: 2 of 5 are too few, 3 of 6 are not.
    expect(circuit.outcome({ ...options, ...FAILURE }).transition).toBeUndefined();
    expect(circuit.outcome({ ...options, ...FAILURE }).transition).toBeUndefined();
    expect(circuit.outcome({ ...options, ...FAILURE })).toMatchObject({ failureRate: 0.5 });
  });

  it('a window that was made shorter or longer meanwhile counts nothing wrong', async () => {
    for (const [before, after] of [
      [60_000, 1_000],
      [1_000, 60_000],
    ] as const) {
      const circuit = new CircuitInMemory();
      for (let call = 0; call < 4; call++) {
        circuit.outcome({ ...FAILURE, minimumCalls: 5, windowMs: before });
      }
      const reply = circuit.outcome({ ...FAILURE, minimumCalls: 5, windowMs: after });
      expect(reply.transition).toBeUndefined();
      expect(parseCircuit((await circuit.store.get('circuit')) ?? '')?.buckets).toHaveLength(1);
    }
  });
});

/** Fails the first call and then each probe at once. @returns for how long it opened, each time */
async function openings(options: object, times: number): Promise<(number | undefined)[]> {
  const circuit = new CircuitInMemory();
  const lengths: (number | undefined)[] = [];
  for (let opening = 0; opening < times; opening++) {
    const { epoch } = circuit.enter();
    const { retryMs = 0 } = circuit.outcome({ ...FAILURE, epoch, ...options });
    lengths.push(retryMs);
    await circuit.advance(retryMs);
  }
  return lengths;
}

describe('for how long does it open?', () => {
  const base = { openMs: 1_000, maxOpenMs: 10_000 };

  it('exactly openFor at first, whatever the jitter; then twice as long each time, half of it random', async () => {
    expect(await openings({ ...base, jitter: 0 }, 6)).toEqual([
      1_000, 1_000, 2_000, 4_000, 5_000, 5_000,
    ]);
    const most = await openings({ ...base, jitter: 0.9999 }, 6);
    expect(most).toEqual([1_000, 1_999, 3_999, 7_999, 9_999, 9_999]);
  });

  it('never shorter than openFor at first, although maxOpenFor is', async () => {
    expect(await openings({ openMs: 1_000, maxOpenMs: 10, jitter: 0.5 }, 3)).toEqual([
      1_000, 750, 750,
    ]);
  });

  it('no number grows beyond all bounds', async () => {
    const lengths = await openings({ openMs: 1, maxOpenMs: 2, jitter: 0 }, 1_200);
    expect(lengths.slice(-3)).toEqual([1, 1, 1]);
  });

  it('a breaker that has closed in between begins anew', async () => {
    const circuit = new CircuitInMemory();
    for (let round = 0; round < 3; round++) {
      const { epoch } = circuit.enter();
      const opened = circuit.outcome({ ...FAILURE, epoch, ...base, jitter: 0.9 });
      expect(opened.retryMs).toBe(1_000);
      await circuit.advance(1_000);
      const probe = circuit.enter();
      expect(circuit.outcome({ epoch: probe.epoch }).transition).toBe('closed');
    }
  });
});

describe('when exactly is the next one let in?', () => {
  it('after the time that it was told, and not a millisecond earlier', async () => {
    const circuit = new CircuitInMemory();
    circuit.outcome({ ...FAILURE, openMs: 1_234 });
    const { retryMs = 0 } = circuit.enter();
    expect(retryMs).toBe(1_234);
    await circuit.advance(retryMs - 1);
    expect(circuit.enter()).toMatchObject({ admitted: false, state: 'open', retryMs: 1 });
    await circuit.advance(1);
    expect(circuit.enter()).toMatchObject({ admitted: true, transition: 'half_opened' });
  });

  it('the same, where a probe does not come back', async () => {
    const circuit = new CircuitInMemory();
    circuit.outcome({ ...FAILURE, openMs: 1 });
    await circuit.advance(1);
    circuit.enter({ token: 'lost', probeMs: 777 });
    expect(circuit.enter({ token: 'next' })).toMatchObject({ admitted: false, retryMs: 777 });
    await circuit.advance(776);
    expect(circuit.enter({ token: 'next' })).toMatchObject({ admitted: false, retryMs: 1 });
    await circuit.advance(1);
    expect(circuit.enter({ token: 'next' })).toMatchObject({
      admitted: true,
      state: 'half_open',
    });
  });

  it('a probe that comes back in its last millisecond is heard, and not in the next', async () => {
    for (const [afterMs, state] of [
      [776, 'counted'],
      [777, 'stale'],
    ] as const) {
      const circuit = new CircuitInMemory();
      circuit.outcome({ ...FAILURE, openMs: 1 });
      await circuit.advance(1);
      const { epoch } = circuit.enter({ probeMs: 777 });
      await circuit.advance(afterMs);
      expect(circuit.outcome({ epoch }).state).toBe(state);
    }
  });
});
