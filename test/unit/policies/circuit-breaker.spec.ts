import { describe, expect, it } from '@jest/globals';
import { CircuitOpenError, OUTCOME_TABLE } from 'nestjs-cmdx';
import type { Invocation } from '../../../lib/invocation.js';
import {
  CircuitBreakerPolicy,
  type CircuitBreakerSettings,
} from '../../../lib/policies/circuit-breaker.js';
import type { Ending } from '../../../lib/policies/policy.js';
import type { CircuitReply, OutcomeReply, OutcomeStep } from '../../../lib/store/store.js';

const SETTINGS: CircuitBreakerSettings = {
  failureRate: 0.5,
  minimumCalls: 10,
  windowMs: 60_000,
  openMs: 30_000,
  maxOpenMs: 600_000,
  permits: 2,
  probeMs: 50_000,
  onOpen: 'fail',
  onStoreError: 'fail',
  ignore: undefined,
  failOn: undefined,
};

const INVOCATION = { tid: 'tid' } as Invocation;
const CLOSED: CircuitReply = { kind: 'circuit', admitted: true, state: 'closed', epoch: 7 };
const HALF_OPEN: CircuitReply = { ...CLOSED, state: 'half_open', epoch: 8 };

function policy(settings: Partial<CircuitBreakerSettings> = {}): CircuitBreakerPolicy {
  return new CircuitBreakerPolicy({ ...SETTINGS, ...settings });
}

function leaveStep(own: CircuitBreakerPolicy, reply: CircuitReply, ending: Ending) {
  return own.giveBack(own.request('key', INVOCATION), reply, ending);
}

/** One ending of each kind. */
const ENDINGS = Object.keys(OUTCOME_TABLE).map(
  (kind) => ({ kind, error: new Error('x'), value: 1, handled: false }) as unknown as Ending,
);

describe('what does it ask of the store?', () => {
  it('whether this run may begin; it is remembered for four times its longest time', () => {
    expect(policy().request('key', INVOCATION)).toEqual({
      kind: 'circuit',
      key: 'key',
      token: 'tid',
      permits: 2,
      probeMs: 50_000,
      ttlMs: 2_400_000,
    });
    for (const [name, ttlMs] of [
      ['windowMs', 4_000_000],
      ['openMs', 4_000_000],
      ['maxOpenMs', 4_000_000],
      ['probeMs', 4_000_000],
    ] as const) {
      expect(policy({ [name]: 1_000_000 }).request('key', INVOCATION).ttlMs).toBe(ttlMs);
    }
  });
});

describe('what does it tell the store of a run that has ended?', () => {
  it.each(ENDINGS)('$kind: what the table says', (ending) => {
    const { sample } = OUTCOME_TABLE[ending.kind];
    const closed = leaveStep(policy(), CLOSED, ending);
    const probed = leaveStep(policy(), HALF_OPEN, ending);
    if (sample === 'ignored') {
      expect(closed).toBeUndefined();
      expect(probed).toEqual({ kind: 'unpermit', key: 'key', token: 'tid', ttlMs: 50_000 });
      return;
    }
    const success = sample === 'success';
    expect(closed).toMatchObject({ kind: 'outcome', key: 'key', token: 'tid', epoch: 7, success });
    expect(probed).toMatchObject({ kind: 'outcome', epoch: 8, success });
  });

  it('all that decides about opening goes along, and a random number of its own', () => {
    const ending: Ending = { kind: 'threw', error: new Error('x') };
    const own = policy();
    const steps = Array.from({ length: 50 }, () => leaveStep(own, CLOSED, ending) as OutcomeStep);
    const { jitter: _, ...step } = steps[0] as OutcomeStep;
    expect(step).toEqual({
      kind: 'outcome',
      key: 'key',
      token: 'tid',
      epoch: 7,
      success: false,
      failureRate: 0.5,
      minimumCalls: 10,
      windowMs: 60_000,
      permits: 2,
      openMs: 30_000,
      maxOpenMs: 600_000,
      ttlMs: 2_400_000,
    });
    const jitters = steps.map(({ jitter }) => jitter);
    expect(Math.min(...jitters)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...jitters)).toBeLessThan(1);
    expect(new Set(jitters).size).toBeGreaterThan(40);
  });

  it('an error is what "failOn" says, then what "ignore" says, then what the table says', () => {
    const isText = (error: unknown): boolean => typeof error === 'string';
    const throws = (): never => {
      throw new Error('a predicate that throws');
    };
    const sampleOf = (settings: Partial<CircuitBreakerSettings>, ending: Ending): unknown => {
      const step = leaveStep(policy(settings), CLOSED, ending);
      return step && (step as OutcomeStep).success ? 'success' : step && 'failure';
    };
    const threw: Ending = { kind: 'threw', error: 'text' };
    const aborted: Ending = { kind: 'aborted', error: 'text' };
    expect(sampleOf({ ignore: isText }, threw)).toBeUndefined();
    expect(sampleOf({ failOn: isText }, aborted)).toBe('failure');
    expect(sampleOf({ ignore: isText, failOn: isText }, threw)).toBe('failure');
    expect(sampleOf({ ignore: throws, failOn: throws }, threw)).toBe('failure');
    expect(sampleOf({ ignore: throws, failOn: throws }, aborted)).toBeUndefined();
    expect(sampleOf({ failOn: throws, ignore: isText }, threw)).toBeUndefined();
    for (const kind of ['skipped', 'failed', 'unused', 'output_invalid'] as const) {
      expect(sampleOf({ failOn: () => true }, { kind })).toBeUndefined();
    }
    expect(sampleOf({ ignore: () => true }, { kind: 'returned', value: 1, handled: false })).toBe(
      'success',
    );
  });
});

describe('what does it make of an answer?', () => {
  const refused = { ...CLOSED, admitted: false, state: 'open', retryMs: 1_500 } as const;

  it('a refusal, with the time in seconds where there is one', () => {
    const { metadata, event, skip } = policy().refusal('key', refused);
    expect([event, skip]).toEqual(['circuit_rejected', false]);
    expect(metadata).toEqual({
      code: 'circuit_open',
      circuitKey: 'key',
      onOpen: 'fail',
      epoch: 7,
      retryAfter: 1.5,
    });
    const { retryMs: _, ...forced } = { ...refused, state: 'forced_open' } as const;
    const own = policy({ onOpen: 'skip' }).refusal('key', forced);
    expect(own.skip).toBe(true);
    expect(own.metadata).toEqual({
      code: 'circuit_open',
      circuitKey: 'key',
      onOpen: 'skip',
      epoch: 7,
    });
    const error = policy().refuse(metadata, { task: 'A.b', tid: 'tid' });
    expect(error).toBeInstanceOf(CircuitOpenError);
    expect(error.getStatus()).toBe(503);
  });

  it('nothing to tell of a call that passes, except that it has become half open', () => {
    expect(policy().admitted('key', CLOSED)).toBeUndefined();
    expect(policy().admitted('key', HALF_OPEN)).toBeUndefined();
    expect(policy().admitted('key', { ...HALF_OPEN, transition: 'half_opened' })).toEqual({
      circuitKey: 'key',
      epoch: 8,
    });
  });

  it('what to tell of an outcome: that it has opened or closed', () => {
    const own = policy();
    const step = leaveStep(own, CLOSED, { kind: 'threw', error: 1 }) as OutcomeStep;
    const told = (answer: OutcomeReply) => own.gaveBack(CLOSED, step, answer);
    const counted = { kind: 'outcome', state: 'counted', epoch: 9 } as const;
    expect(told({ kind: 'outcome', state: 'counted' })).toBeUndefined();
    expect(told({ kind: 'outcome', state: 'stale' })).toBeUndefined();
    expect(told({ ...counted, transition: 'opened', failureRate: 0.6, retryMs: 30_000 })).toEqual({
      name: 'circuit_opened',
      payload: { circuitKey: 'key', epoch: 9, failureRate: 0.6, retryAfter: 30 },
    });
    expect(told({ ...counted, transition: 'closed' })).toEqual({
      name: 'circuit_closed',
      payload: { circuitKey: 'key', epoch: 9 },
    });
    expect(own.gaveBack(HALF_OPEN, step, { kind: 'unpermit', returned: true })).toBeUndefined();
  });
});
