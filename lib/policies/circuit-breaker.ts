import { toSeconds } from '../clock/duration.js';
import {
  CircuitOpenError,
  type CircuitOpenMetadata,
  type RefusalMetadata,
  type RefusalSite,
} from '../errors/refusals.js';
import { attempt } from '../errors/reading.js';
import type { Invocation } from '../invocation.js';
import type {
  CircuitReply,
  CircuitStep,
  EnterReply,
  EnterStep,
  LeaveReply,
  LeaveStep,
} from '../store/store.js';
import type { CircuitPayload } from '../telemetry/events.js';
import type { ErrorMatcher } from './error-matcher.js';
import { OUTCOME_TABLE, type OutcomeRow } from './outcome-table.js';
import type { Ending, PolicyEvent, Refused, StorePolicy } from './policy.js';

/** A breaker's settings after inheritance, defaults and validation. */
export interface CircuitBreakerSettings {
  readonly failureRate: number;
  readonly minimumCalls: number;
  readonly windowMs: number;
  readonly openMs: number;
  readonly maxOpenMs: number;
  readonly permits: number;
  readonly probeMs: number;
  readonly onOpen: 'fail' | 'skip';
  readonly onStoreError: 'fail' | 'run';
  readonly ignore: ErrorMatcher | undefined;
  readonly failOn: ErrorMatcher | undefined;
}

/** How long a breaker that has opened and that nobody calls is remembered, as a multiple of its longest time. */
const REMEMBERED = 4;

/**
 * Stops calling what is sick: counts failures over a window of time, refuses while it is open, and
 * lets a few probes find out whether it is well again.
 */
export class CircuitBreakerPolicy implements StorePolicy {
  readonly policy = 'circuitBreaker';
  readonly own = false;
  readonly admittedEvent = 'circuit_half_opened';
  readonly admittedOnce = false;
  readonly canReplay = false;
  readonly repeatedWhileWaiting = true;
  readonly #ttlMs: number;

  constructor(private readonly settings: CircuitBreakerSettings) {
    const { windowMs, maxOpenMs, openMs, probeMs } = settings;
    this.#ttlMs = REMEMBERED * Math.max(windowMs, maxOpenMs, openMs, probeMs);
  }

  get canSkip(): boolean {
    return this.settings.onOpen === 'skip';
  }

  get onStoreError(): 'fail' | 'run' {
    return this.settings.onStoreError;
  }

  patienceMs(): number {
    return 0;
  }

  request(key: string, invocation: Invocation): CircuitStep {
    const { permits, probeMs } = this.settings;
    return { kind: 'circuit', key, token: invocation.tid, permits, probeMs, ttlMs: this.#ttlMs };
  }

  admitted(key: string, { transition, epoch }: CircuitReply): CircuitPayload | undefined {
    return transition && { circuitKey: key, epoch };
  }

  refusal(key: string, reply: CircuitReply): Refused {
    const { epoch, retryMs } = reply;
    const metadata: CircuitOpenMetadata = {
      code: 'circuit_open',
      circuitKey: key,
      onOpen: this.settings.onOpen,
      epoch,
      ...(retryMs !== undefined && { retryAfter: toSeconds(retryMs) }),
    };
    return { metadata, event: 'circuit_rejected', skip: this.canSkip };
  }

  giveBack(step: EnterStep, reply: EnterReply, ending: Ending): LeaveStep | undefined {
    const { key, token, probeMs } = step as CircuitStep;
    const { state, epoch } = reply as CircuitReply;
    const sample = this.#sampleOf(ending);
    if (sample === 'ignored') {
      const probing = state === 'half_open';
      return probing ? { kind: 'unpermit', key, token, ttlMs: probeMs } : undefined;
    }
    const { failureRate, minimumCalls, windowMs, permits, openMs, maxOpenMs } = this.settings;
    return {
      kind: 'outcome',
      key,
      token,
      epoch,
      success: sample === 'success',
      failureRate,
      minimumCalls,
      windowMs,
      permits,
      openMs,
      maxOpenMs,
      jitter: Math.random(),
      ttlMs: this.#ttlMs,
      ...(state === 'half_open' && { probeMs }),
    };
  }

  gaveBack(_reply: EnterReply, step: LeaveStep, answer: LeaveReply): PolicyEvent | undefined {
    if (answer.kind !== 'outcome' || !answer.transition) return undefined;
    const { transition, epoch = 0, failureRate, retryMs } = answer;
    const payload = {
      circuitKey: step.key,
      epoch,
      ...(failureRate !== undefined && { failureRate }),
      ...(retryMs !== undefined && { retryAfter: toSeconds(retryMs) }),
    };
    return { name: transition === 'opened' ? 'circuit_opened' : 'circuit_closed', payload };
  }

  held(): undefined {}

  keptAlive(): undefined {}

  refuse(metadata: RefusalMetadata, site: RefusalSite): CircuitOpenError {
    return new CircuitOpenError(metadata as CircuitOpenMetadata, site);
  }

  /** What the options say of an error goes before what the table says. */
  #sampleOf(ending: Ending): OutcomeRow['sample'] {
    const { ignore, failOn } = this.settings;
    if ('error' in ending) {
      const { error } = ending;
      // A predicate that throws must not keep a lease from being given back.
      if (attempt(() => failOn?.(error))) return 'failure';
      if (attempt(() => ignore?.(error))) return 'ignored';
    }
    return OUTCOME_TABLE[ending.kind].sample;
  }
}
