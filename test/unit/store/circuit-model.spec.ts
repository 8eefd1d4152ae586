import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { type CircuitReply, type OutcomeReply, parseCircuit } from 'nestjs-cmdx';
import { CircuitInMemory } from '../../support/circuit-steps.js';

/** How many random interleavings to try; a soak run sets thousands. */
const RUNS = Number(process.env['CMDX_MODEL_RUNS'] ?? 50) * 4;

const BUCKET_MS = 20;
const WINDOW_MS = 10 * BUCKET_MS;
const OPEN_MS = 50;
const MAX_OPEN_MS = 200;
const PROBE_MS = 80;
const CALLERS = 5;

interface Rules {
  readonly permits: number;
  readonly minimumCalls: number;
  readonly failureRate: number;
}

type Action =
  | { readonly do: 'call'; readonly caller: number }
  /** `late`: of the call before the last that was let in. */
  | {
      readonly do: 'end';
      readonly caller: number;
      readonly success: boolean;
      readonly late: boolean;
    }
  | { readonly do: 'give back'; readonly caller: number }
  | { readonly do: 'wait'; readonly ms: number };

const anyRules: fc.Arbitrary<Rules> = fc.record({
  permits: fc.integer({ min: 1, max: 3 }),
  minimumCalls: fc.integer({ min: 1, max: 4 }),
  failureRate: fc.constantFrom(0.25, 0.5, 1),
});
const caller = fc.nat({ max: CALLERS - 1 });
const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('call' as const), caller }) },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('end' as const),
      caller,
      success: fc.boolean(),
      late: fc.oneof({ weight: 5, arbitrary: fc.constant(false) }, fc.constant(true)),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('give back' as const), caller }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      ms: fc.constantFrom(1, 19, 20, 49, 50, 79, 80, 100, 180, 200),
    }),
  },
);
const schedule = fc.array(action, { minLength: 10, maxLength: 80, size: 'max' });

interface Sample {
  readonly at: number;
  readonly failed: boolean;
}

/**
 * The breaker as the contract tells it, of lists of single calls and moments. The random number in its
 * back-off is a half.
 */
class Model {
  now = 1_000_000;
  state: 'closed' | 'open' | 'half_open' = 'closed';
  /** Counts the changes of state; the store's epoch is another number, but changes with it. */
  generation = 0;
  openUntil = 0;
  samples: Sample[] = [];
  probes = new Map<string, number>();
  #opens = 0;
  #successes = 0;

  constructor(private readonly rules: Rules) {}

  call(token: string): Omit<CircuitReply, 'epoch'> {
    const { state } = this;
    if (state === 'closed') return { kind: 'circuit', admitted: true, state };
    if (state === 'open') {
      const retryMs = this.openUntil - this.now;
      if (retryMs > 0) return { kind: 'circuit', admitted: false, state, retryMs };
      this.#become('half_open');
      this.probes.set(token, this.now + PROBE_MS);
      return { kind: 'circuit', admitted: true, state: 'half_open', transition: 'half_opened' };
    }
    const out = this.#out();
    if (out.has(token)) return { kind: 'circuit', admitted: true, state };
    if (out.size + this.#successes >= this.rules.permits) {
      const retryMs = Math.min(...out.values()) - this.now;
      return { kind: 'circuit', admitted: false, state, retryMs };
    }
    this.probes.set(token, this.now + PROBE_MS);
    return { kind: 'circuit', admitted: true, state };
  }

  end(token: string, generation: number, success: boolean): Omit<OutcomeReply, 'epoch'> {
    const stale = { kind: 'outcome', state: 'stale' } as const;
    const counted = { kind: 'outcome', state: 'counted' } as const;
    if (generation !== this.generation || this.state === 'open') return stale;
    if (this.state === 'half_open') {
      if (!this.giveBack(token)) return stale;
      if (!success) return { ...counted, ...this.#open(1) };
      this.#successes += 1;
      if (this.#successes < this.rules.permits) return counted;
      this.#become('closed');
      this.#opens = 0;
      return { ...counted, transition: 'closed' };
    }
    this.samples.push({ at: this.now, failed: !success });
    if (success) return counted;
    const bucket = (at: number): number => Math.floor(at / BUCKET_MS);
    const seen = this.samples.filter(({ at }) => bucket(this.now) - bucket(at) < 10);
    const rate = seen.filter(({ failed }) => failed).length / seen.length;
    const { minimumCalls, failureRate } = this.rules;
    if (seen.length < minimumCalls || rate < failureRate) return counted;
    return { ...counted, ...this.#open(rate) };
  }

  giveBack(token: string): boolean {
    return this.state === 'half_open' && this.#out().has(token) && this.probes.delete(token);
  }

  #out(): Map<string, number> {
    return new Map([...this.probes].filter(([, deadline]) => deadline > this.now));
  }

  #open(failureRate: number): Pick<OutcomeReply, 'transition' | 'failureRate' | 'retryMs'> {
    const again = [OPEN_MS, OPEN_MS * 2, OPEN_MS * 4];
    const longest = again[Math.min(this.#opens, 2)] ?? OPEN_MS;
    const retryMs = this.#opens === 0 ? OPEN_MS : longest * 0.75;
    this.#become('open');
    this.#opens += 1;
    this.openUntil = this.now + retryMs;
    return { transition: 'opened', failureRate, retryMs };
  }

  #become(state: Model['state']): void {
    this.state = state;
    this.generation += 1;
    this.samples = [];
    this.probes.clear();
    this.#successes = 0;
  }
}

/** What a caller knows of a call that was let in. */
interface Call {
  readonly epoch: number;
  readonly generation: number;
}

/** Runs a schedule on the store and on the model, which have to say the same. */
async function follow(rules: Rules, actions: readonly Action[]) {
  const circuit = new CircuitInMemory();
  const model = new Model(rules);
  const calls = new Map<number, Call[]>();
  const epochs: number[] = [0];
  for (const next of actions) {
    if (next.do === 'wait') {
      model.now += next.ms;
      await circuit.advance(next.ms);
      continue;
    }
    const token = `caller${next.caller}`;
    const known = calls.get(next.caller) ?? [];
    if (next.do === 'give back') {
      expect(circuit.unpermit(token)).toBe(model.giveBack(token));
      continue;
    }
    if (next.do === 'call') {
      const { epoch, ...reply } = circuit.enter({
        token,
        permits: rules.permits,
        probeMs: PROBE_MS,
      });
      expect(reply).toEqual(model.call(token));
      if (reply.admitted)
        calls.set(next.caller, [...known, { epoch, generation: model.generation }]);
      if (epoch !== epochs.at(-1)) epochs.push(epoch);
    } else {
      const call = known.at(next.late ? -2 : -1) ?? { epoch: 0, generation: 0 };
      const { success } = next;
      const { epoch, ...reply } = circuit.outcome({
        token,
        success,
        ...rules,
        ...settings,
        epoch: call.epoch,
      });
      expect(reply).toEqual(model.end(token, call.generation, success));
      if (epoch !== undefined) epochs.push(epoch);
    }
    const record = parseCircuit((await circuit.store.get('circuit')) ?? '');
    expect(record?.state ?? 'closed').toBe(model.state);
    const out = (record?.permits ?? []).filter(({ deadline }) => deadline > model.now);
    expect(out.length + (record?.successes ?? 0)).toBeLessThanOrEqual(rules.permits);
  }
  // One for each change of state, each later than the one before.
  expect(epochs).toEqual([...new Set(epochs)].toSorted((a, b) => a - b));
  expect(epochs).toHaveLength(model.generation + 1);
  return { circuit, model };
}

const settings = {
  windowMs: WINDOW_MS,
  openMs: OPEN_MS,
  maxOpenMs: MAX_OPEN_MS,
  jitter: 0.5,
} as const;

/** A lone caller does as he is told; everybody else has gone, and has taken the permits along. */
async function recover(circuit: CircuitInMemory, { permits, ...thresholds }: Rules): Promise<void> {
  for (let call = 1; ; call++) {
    expect(call).toBeLessThan(20);
    const token = `healthy${call}`;
    const reply = circuit.enter({ token, permits, probeMs: PROBE_MS });
    const { admitted, state, epoch, retryMs = 0 } = reply;
    if (state === 'closed') return;
    if (admitted) circuit.outcome({ token, epoch, permits, ...thresholds, ...settings });
    else await circuit.advance(retryMs);
  }
}

describe('a breaker of which five callers do anything in any order', () => {
  it(`does what its rules say, and closes again once all calls succeed (${RUNS} interleavings)`, async () => {
    const reached = new Set<string>();
    await fc.assert(
      fc.asyncProperty(anyRules, schedule, async (rules, actions) => {
        const { circuit, model } = await follow(rules, actions);
        reached.add(model.state);
        await recover(circuit, rules);
        expect(circuit.clock.now() - model.now).toBeLessThanOrEqual(MAX_OPEN_MS + PROBE_MS);
      }),
      { numRuns: RUNS },
    );
    expect(reached).toEqual(new Set(['closed', 'open', 'half_open']));
  }, 3_600_000);
});
