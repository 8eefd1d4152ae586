import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { Deadline } from '../clock/deadline.js';
import type {
  CircuitReply,
  CircuitStep,
  ClaimReply,
  ClaimStep,
  CompleteReply,
  CompleteStep,
  EnterReply,
  EnterStep,
  FixedWindowReply,
  FixedWindowStep,
  Hold,
  LeakyBucketReply,
  LeakyBucketStep,
  LeaseReply,
  LeaseStep,
  LeaveReply,
  LeaveStep,
  OutcomeReply,
  OutcomeStep,
  ReleaseStep,
  Store,
  UnclaimReply,
  UnclaimStep,
  UnpermitStep,
} from '../store/store.js';

/** A store under test and the time it lives in. */
export interface StoreHarness {
  readonly store: Store;
  /** Moves the store's time on by so many milliseconds: a manual clock, or really waiting. */
  advance(ms: number): Promise<void>;
  /** How many milliseconds may pass by themselves between two calls; 0 with a manual clock. */
  readonly slackMs: number;
  /**
   * Writes a raw text past the store, to see broken state heal; `ttlMs` undefined means no ttl.
   * Leave it out for a store whose state nobody else can touch.
   */
  readonly plant?: (key: string, value: string, ttlMs: number | undefined) => Promise<void>;
  /** Closes the store and whatever was opened for it. */
  dispose(): Promise<void>;
}

/** One statement of the contract. */
export interface StoreConformanceCase {
  readonly name: string;
  /**
   * @param createHarness makes a fresh harness; keys are unique, so the state behind it may be shared
   * @throws AssertionError when the store breaks the contract
   */
  run(createHarness: () => Promise<StoreHarness>): Promise<void>;
}

export const PATIENCE_MS = 5_000;
/** Long enough that a real store's own delays stay far below it, short enough to wait for. */
export const SHORT_MS = 300;
export const LONG_MS = 60_000;

/** What a case works with: the harness, keys nobody else uses, and shorthands for single steps. */
export class Bench {
  readonly #scope = randomUUID();

  constructor(readonly harness: StoreHarness) {}

  get store(): Store {
    return this.harness.store;
  }

  key(name: string): string {
    return `conformance:${this.#scope}:${name}`;
  }

  async enter(...steps: EnterStep[]): Promise<EnterReply[]> {
    return this.store.enter(steps, Deadline.after(PATIENCE_MS));
  }

  async leave(...steps: LeaveStep[]): Promise<LeaveReply[]> {
    return this.store.leave(steps);
  }

  async window(key: string, max: number, windowMs = LONG_MS): Promise<FixedWindowReply> {
    const [reply] = await this.enter(windowStep(key, max, windowMs));
    assert.equal(reply?.kind, 'fixed_window');
    return reply;
  }

  async pour(key: string, capacityMs: number, costMs: number): Promise<LeakyBucketReply> {
    const [reply] = await this.enter(bucketStep(key, capacityMs, costMs));
    assert.equal(reply?.kind, 'leaky_bucket');
    return reply;
  }

  async lease(key: string, token: string, ttlMs = LONG_MS): Promise<LeaseReply> {
    const [reply] = await this.enter(leaseStep(key, token, ttlMs));
    assert.equal(reply?.kind, 'lease');
    return reply;
  }

  async release(key: string, token: string): Promise<boolean> {
    const [reply] = await this.leave(releaseStep(key, token));
    assert.equal(reply?.kind, 'release');
    return reply.released;
  }

  async claim(key: string, token: string, options?: Partial<ClaimStep>): Promise<ClaimReply> {
    const [reply] = await this.enter(claimStep(key, token, options));
    assert.equal(reply?.kind, 'claim');
    return reply;
  }

  /** Leaves a record behind whose owner has not been heard of for as long as its lease. */
  async abandon(key: string, token: string, options?: Partial<ClaimStep>): Promise<void> {
    assert.equal((await this.claim(key, token, { ...options, leaseMs: 1 })).admitted, true);
    await this.harness.advance(LAPSE_MS);
  }

  async complete(
    key: string,
    token: string,
    options?: Partial<CompleteStep>,
  ): Promise<CompleteReply['state']> {
    const [reply] = await this.leave(completeStep(key, token, options));
    assert.equal(reply?.kind, 'complete');
    return reply.state;
  }

  async unclaim(key: string, token: string): Promise<UnclaimReply['state']> {
    const [reply] = await this.leave(unclaimStep(key, token));
    assert.equal(reply?.kind, 'unclaim');
    return reply.state;
  }

  async renew(key: string, token: string, times?: Partial<Hold>): Promise<boolean> {
    const [kept] = await this.store.renew([holdOf(key, token, times)]);
    assert.equal(typeof kept, 'boolean');
    return kept === true;
  }

  async circuit(key: string, token: string, options?: Partial<CircuitStep>): Promise<CircuitReply> {
    const [reply] = await this.enter(circuitStep(key, token, options));
    assert.equal(reply?.kind, 'circuit');
    return reply;
  }

  async outcome(key: string, token: string, options?: Partial<OutcomeStep>): Promise<OutcomeReply> {
    const [reply] = await this.leave(outcomeStep(key, token, options));
    assert.equal(reply?.kind, 'outcome');
    return reply;
  }

  async unpermit(key: string, token: string): Promise<boolean> {
    const [reply] = await this.leave(unpermitStep(key, token));
    assert.equal(reply?.kind, 'unpermit');
    return reply.returned;
  }

  /** Opens the breaker of a fresh key with one failure. @returns its epoch */
  async trip(key: string, options?: Partial<OutcomeStep>): Promise<number> {
    const reply = await this.outcome(key, 'first', { success: false, ...options });
    assert.equal(reply.transition, 'opened');
    assert.ok(reply.epoch !== undefined, 'expected an epoch');
    return reply.epoch;
  }

  /** Leaves a breaker behind whose next caller is a probe. */
  async tripped(key: string): Promise<void> {
    await this.trip(key, { openMs: 1 });
    await this.harness.advance(LAPSE_MS);
  }

  /** Some time may have passed since `expected` was true. */
  isRemaining(actual: number | undefined, expected: number): void {
    assert.ok(actual !== undefined, 'expected a remaining time');
    const lowest = expected - this.harness.slackMs;
    assert.ok(
      actual >= lowest && actual <= expected,
      `expected a time between ${lowest} and ${expected}, got ${actual}`,
    );
  }

  /** What a store may do in the background. */
  async soon(question: () => Promise<boolean>, what: string): Promise<void> {
    for (let tries = 0; !(await question()); tries += 1) {
      assert.ok(tries < MOST_TRIES, `waited in vain for ${what}`);
      await this.harness.advance(LAPSE_MS);
    }
  }

  async livesFor(key: string, expectedMs: number): Promise<void> {
    this.isRemaining(((await this.store.remainingTtl(key)) ?? 0) * 1_000, expectedMs);
  }
}

const MOST_TRIES = 200;
/** After so long a lease or a ttl of a millisecond is over, however a store rounds. */
export const LAPSE_MS = 10;

export function windowStep(key: string, max: number, windowMs = LONG_MS): FixedWindowStep {
  return { kind: 'fixed_window', key, max, windowMs };
}

export function bucketStep(key: string, capacityMs: number, costMs: number): LeakyBucketStep {
  return { kind: 'leaky_bucket', key, capacityUs: capacityMs * 1_000, costUs: costMs * 1_000 };
}

export function leaseStep(key: string, token: string, ttlMs = LONG_MS): LeaseStep {
  return { kind: 'lease', key, token, ttlMs };
}

export function releaseStep(key: string, token: string): ReleaseStep {
  return { kind: 'release', key, token, ttlMs: LONG_MS };
}

/** How long outcomes are remembered here, so that a lease and a ttl cannot be mistaken for each other. */
export const TTL_MS = 10 * LONG_MS;

export function claimStep(key: string, token: string, options?: Partial<ClaimStep>): ClaimStep {
  return {
    kind: 'claim',
    key,
    token,
    leaseMs: LONG_MS,
    ttlMs: TTL_MS,
    onAbandoned: 'fail',
    ...options,
  };
}

export function completeStep(
  key: string,
  token: string,
  options?: Partial<CompleteStep>,
): CompleteStep {
  return { kind: 'complete', key, token, run: 1, ttlMs: TTL_MS, ...options };
}

export function unclaimStep(key: string, token: string): UnclaimStep {
  return { kind: 'unclaim', key, token, ttlMs: LONG_MS };
}

export function holdOf(key: string, token: string, times?: Partial<Hold>): Hold {
  return { kind: 'claim', key, token, leaseMs: LONG_MS, ttlMs: TTL_MS, ...times };
}

export function circuitStep(
  key: string,
  token: string,
  options?: Partial<CircuitStep>,
): CircuitStep {
  return { kind: 'circuit', key, token, permits: 1, probeMs: LONG_MS, ttlMs: TTL_MS, ...options };
}

/** A success in a breaker that one failure opens. */
export function outcomeStep(
  key: string,
  token: string,
  options?: Partial<OutcomeStep>,
): OutcomeStep {
  return {
    kind: 'outcome',
    key,
    token,
    epoch: 0,
    success: true,
    failureRate: 0.5,
    minimumCalls: 1,
    windowMs: LONG_MS,
    permits: 1,
    openMs: LONG_MS,
    maxOpenMs: 10 * LONG_MS,
    jitter: 0,
    ttlMs: TTL_MS,
    ...options,
  };
}

export function unpermitStep(key: string, token: string): UnpermitStep {
  return { kind: 'unpermit', key, token, ttlMs: LONG_MS };
}

export function statement(
  name: string,
  check: (bench: Bench) => Promise<void>,
): StoreConformanceCase {
  return {
    name,
    run: async (createHarness) => {
      const harness = await createHarness();
      try {
        await check(new Bench(harness));
      } finally {
        await harness.dispose();
      }
    },
  };
}
