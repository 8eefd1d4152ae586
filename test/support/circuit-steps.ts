import {
  type CircuitReply,
  type CircuitStep,
  Deadline,
  MemoryStore,
  type MemoryStoreOptions,
  type OutcomeReply,
  type OutcomeStep,
} from 'nestjs-cmdx';
import { ManualClock } from 'nestjs-cmdx/testing';

export const MINUTE_MS = 60_000;

export function circuitStep(options: Partial<CircuitStep> = {}): CircuitStep {
  return {
    kind: 'circuit',
    key: 'circuit',
    token: 'token',
    permits: 1,
    probeMs: MINUTE_MS,
    ttlMs: 60 * MINUTE_MS,
    ...options,
  };
}

/** A success in a breaker that one failure opens. */
export function outcomeStep(options: Partial<OutcomeStep> = {}): OutcomeStep {
  return {
    kind: 'outcome',
    key: 'circuit',
    token: 'token',
    epoch: 0,
    success: true,
    failureRate: 0.5,
    minimumCalls: 1,
    windowMs: MINUTE_MS,
    permits: 1,
    openMs: MINUTE_MS,
    maxOpenMs: 10 * MINUTE_MS,
    jitter: 0,
    ttlMs: 60 * MINUTE_MS,
    ...options,
  };
}

/** One breaker in a memory store, in a time that stands still. */
export class CircuitInMemory {
  readonly clock = new ManualClock(1_000_000);
  readonly store: MemoryStore;

  constructor(options?: MemoryStoreOptions) {
    this.store = new MemoryStore(options);
    this.store.useClock(this.clock);
  }

  enter(options?: Partial<CircuitStep>): CircuitReply {
    const [reply] = this.store.enter([circuitStep(options)], Deadline.after(MINUTE_MS));
    return reply as CircuitReply;
  }

  outcome(options?: Partial<OutcomeStep>): OutcomeReply {
    return this.store.leave([outcomeStep(options)])[0] as OutcomeReply;
  }

  unpermit(token = 'token'): boolean {
    const step = { kind: 'unpermit', key: 'circuit', token, ttlMs: MINUTE_MS } as const;
    const [reply] = this.store.leave([step]);
    return reply?.kind === 'unpermit' && reply.returned;
  }

  advance(ms: number): Promise<void> {
    return this.clock.advance(`${ms}ms`);
  }
}
