import { describe, expect, it } from '@jest/globals';
import {
  circuitText,
  type CircuitRecord,
  Deadline,
  type EnterStep,
  isStoreError,
  parseCircuit,
} from 'nestjs-cmdx';
import { CircuitInMemory, MINUTE_MS } from '../../support/circuit-steps.js';

const FAILURE = { success: false } as const;

function lease(key: string): EnterStep {
  return { kind: 'lease', key, token: 'token', ttlMs: 60 * MINUTE_MS };
}

/** Takes leases until there is no room. @returns why not one more */
function fill(circuit: CircuitInMemory): string {
  for (let i = 0; i < 100; i++) {
    try {
      circuit.store.enter([lease(`lease${i}`)], Deadline.after(MINUTE_MS));
    } catch (error) {
      if (isStoreError(error)) return error.reason;
      throw error;
    }
  }
  return 'never full';
}

async function stateOf(circuit: CircuitInMemory): Promise<CircuitRecord['state'] | undefined> {
  return parseCircuit((await circuit.store.get('circuit')) ?? '')?.state;
}

describe('which breakers does a full memory store drop?', () => {
  it('one that is closed: a few calls are forgotten', async () => {
    const circuit = new CircuitInMemory({ maxKeys: 5 });
    circuit.outcome({ minimumCalls: 5 });
    expect(fill(circuit)).toBe('full');
    expect(await stateOf(circuit)).toBeUndefined();
    expect(circuit.enter()).toMatchObject({ admitted: true, state: 'closed' });
  });

  it('never one that is open', async () => {
    const circuit = new CircuitInMemory({ maxKeys: 5 });
    circuit.outcome(FAILURE);
    expect(fill(circuit)).toBe('full');
    expect(circuit.enter()).toMatchObject({ admitted: false, state: 'open' });
  });

  it('never one that is half open, which then closes and may go', async () => {
    const circuit = new CircuitInMemory({ maxKeys: 5 });
    circuit.outcome({ ...FAILURE, openMs: 1 });
    await circuit.advance(1);
    const { epoch } = circuit.enter();
    expect(fill(circuit)).toBe('full');
    expect(await stateOf(circuit)).toBe('half_open');
    expect(circuit.outcome({ epoch }).transition).toBe('closed');
    expect(await stateOf(circuit)).toBe('closed');
    circuit.store.enter([lease('one more')], Deadline.after(MINUTE_MS));
    expect(await stateOf(circuit)).toBeUndefined();
  });

  it.each(['forced_open', 'forced_closed'] as const)('never one that is %s', async (state) => {
    const circuit = new CircuitInMemory({ maxKeys: 5 });
    const record = { state, epoch: 1, openUntil: 0, opens: 0, successes: 0 };
    const text = circuitText({ ...record, permits: [], buckets: [] });
    await circuit.store.set('circuit', text, { ttl: '1h' });
    expect(circuit.enter().state).toBe(state);
    expect(fill(circuit)).toBe('full');
    expect(circuit.enter().state).toBe(state);
  });

  it('none that opens while the store is full', async () => {
    const circuit = new CircuitInMemory({ maxKeys: 5 });
    for (let i = 0; i < 4; i++) {
      circuit.store.enter([lease(`lease${i}`)], Deadline.after(MINUTE_MS));
    }
    circuit.outcome({ ...FAILURE, minimumCalls: 2 });
    expect(circuit.store.size).toBe(5);
    expect(circuit.outcome({ ...FAILURE, minimumCalls: 2 }).transition).toBe('opened');
    expect(circuit.store.size).toBe(5);
    expect(fill(circuit)).toBe('full');
    expect(await stateOf(circuit)).toBe('open');
  });

  it('a call for which there is no room is an error, and keeps nothing else from being left', async () => {
    const circuit = new CircuitInMemory({ maxKeys: 5 });
    expect(fill(circuit)).toBe('full');
    const counted = { ...FAILURE, key: 'circuit' };
    expect(() => circuit.outcome(counted)).toThrow('The memory store is full.');
    expect(circuit.store.size).toBe(5);
    // Whoever asks takes no room.
    expect(circuit.enter()).toMatchObject({ admitted: true, state: 'closed' });
  });

  it('there is room again once an open one has been forgotten', async () => {
    const circuit = new CircuitInMemory({ maxKeys: 1 });
    circuit.outcome({ ...FAILURE, openMs: 1_000, ttlMs: 1_000 });
    await circuit.advance(1_999);
    expect(fill(circuit)).toBe('full');
    expect(await stateOf(circuit)).toBe('open');
    // What has expired is looked for once a second.
    await circuit.advance(1_000);
    circuit.store.enter([lease('lease')], Deadline.after(MINUTE_MS));
    expect(await stateOf(circuit)).toBeUndefined();
  });
});
