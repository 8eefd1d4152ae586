import type { Caller, Replay } from '../answer.js';
import { toSeconds } from '../clock/duration.js';
import { describeThrown } from '../errors/reading.js';
import {
  AbandonedError,
  type AbandonedMetadata,
  DuplicateError,
  type DuplicateMetadata,
  InProgressError,
  type InProgressMetadata,
  PayloadMismatchError,
  type PayloadMismatchMetadata,
  type RefusalError,
  type RefusalMetadata,
  type RefusalSite,
} from '../errors/refusals.js';
import type { Invocation } from '../invocation.js';
import type {
  ClaimReply,
  ClaimStep,
  EnterReply,
  EnterStep,
  Hold,
  LeaveReply,
  LeaveStep,
} from '../store/store.js';
import { undoOf } from '../store/undo.js';
import type { IdempotencyPayload } from '../telemetry/events.js';
import { type OutcomeSettings, OutcomeText } from './outcome.js';
import { OUTCOME_TABLE } from './outcome-table.js';
import type { Ending, PolicyEvent, Refused, StorePolicy } from './policy.js';

/** The settings of an idempotent method after inheritance, defaults and validation. */
export interface IdempotencySettings extends OutcomeSettings {
  readonly ttlMs: number;
  readonly leaseMs: number;
  readonly waitMs: number;
  readonly onDuplicate: 'replay' | 'skip' | 'fail';
  readonly onInProgress: 'fail' | 'skip' | 'wait';
  readonly onAbandoned: 'fail' | 'rerun';
  readonly onStoreError: 'fail' | 'run';
  /** Told, once of each kind, what keeps answers of the method from being given again. */
  readonly warn: (message: string) => void;
}

type IdempotencyRefusal =
  DuplicateMetadata | InProgressMetadata | AbandonedMetadata | PayloadMismatchMetadata;

/**
 * Lets the work of a key be done once: claims the key before the body, and remembers what came of
 * it. A claim is a lease whose owner renews it; its record outlives both.
 */
export class IdempotencyPolicy implements StorePolicy {
  readonly policy = 'idempotency';
  readonly own = false;
  readonly admittedEvent = 'idempotency_claimed';
  readonly repeatedWhileWaiting = true;
  readonly admittedOnce = true;
  readonly #text: OutcomeText;
  readonly #told = new Set<'kept' | 'read'>();

  constructor(private readonly settings: IdempotencySettings) {
    this.#text = new OutcomeText(settings);
  }

  get canSkip(): boolean {
    return this.settings.onDuplicate === 'skip' || this.settings.onInProgress === 'skip';
  }

  get canReplay(): boolean {
    return this.settings.onDuplicate === 'replay';
  }

  get onStoreError(): 'fail' | 'run' {
    return this.settings.onStoreError;
  }

  patienceMs(reply: EnterReply): number {
    const { onInProgress, waitMs } = this.settings;
    return onInProgress === 'wait' && (reply as ClaimReply).state === 'in_progress' ? waitMs : 0;
  }

  request(key: string, invocation: Invocation, fingerprint?: string): ClaimStep {
    const { leaseMs, ttlMs, onAbandoned } = this.settings;
    return {
      kind: 'claim',
      key,
      token: invocation.tid,
      leaseMs,
      ttlMs,
      onAbandoned,
      fingerprint,
    };
  }

  admitted(key: string, { run }: ClaimReply): IdempotencyPayload {
    return { idempotencyKey: key, run };
  }

  refusal(key: string, reply: ClaimReply, caller: Caller): Refused {
    const { run, holder, remainingMs } = reply;
    const { onDuplicate, onInProgress } = this.settings;
    const facts = { idempotencyKey: key, run, ...(holder !== undefined && { holder }) };
    switch (reply.state) {
      case 'in_progress':
        return {
          metadata: {
            code: 'in_progress',
            onInProgress,
            ...facts,
            ...(remainingMs !== undefined && { retryAfter: toSeconds(remainingMs) }),
          },
          event: 'idempotency_in_progress',
          skip: onInProgress === 'skip',
        };
      case 'abandoned':
        return {
          metadata: { code: 'abandoned', ...facts },
          event: 'idempotency_abandoned',
          skip: false,
        };
      case 'mismatch':
        return {
          metadata: { code: 'payload_mismatch', ...facts },
          event: 'idempotency_mismatch',
          skip: false,
        };
      default: {
        const skip = onDuplicate === 'skip';
        const kept = skip ? undefined : this.#recall(reply.outcome, caller);
        const replayable = skip ? reply.state === 'done' : kept !== undefined;
        return {
          metadata: { code: 'duplicate', onDuplicate, replayable, ...facts },
          event: 'idempotency_duplicate',
          skip,
          replay: onDuplicate === 'replay' ? kept : undefined,
        };
      }
    }
  }

  giveBack(step: EnterStep, reply: EnterReply, ending: Ending): LeaveStep | undefined {
    const { claim } = OUTCOME_TABLE[ending.kind];
    if (claim === 'drop') return undoOf(step);
    // Renewed no more, it runs out.
    if (claim === 'abandon') return undefined;
    const { key, token, ttlMs, fingerprint } = step as ClaimStep;
    const { run } = reply as ClaimReply;
    const outcome = claim === 'keep' ? this.#keep(ending) : undefined;
    return { kind: 'complete', key, token, run, ttlMs, fingerprint, outcome };
  }

  gaveBack(reply: EnterReply, step: LeaveStep, answer: LeaveReply): PolicyEvent | undefined {
    if (!('state' in answer) || answer.state !== 'stale') return undefined;
    const payload = { idempotencyKey: step.key, run: (reply as ClaimReply).run };
    return { name: 'idempotency_stale', payload };
  }

  held(): undefined {}

  keptAlive(step: EnterStep): Hold {
    return step as ClaimStep;
  }

  refuse(metadata: RefusalMetadata, site: RefusalSite): RefusalError {
    const refusal = metadata as IdempotencyRefusal;
    switch (refusal.code) {
      case 'duplicate':
        return new DuplicateError(refusal, site);
      case 'in_progress':
        return new InProgressError(refusal, site);
      case 'abandoned':
        return new AbandonedError(refusal, site);
      case 'payload_mismatch':
        return new PayloadMismatchError(refusal, site);
    }
  }

  /** @returns `undefined` when it cannot be kept: the work is done all the same, and never again */
  #keep(ending: Ending): string | undefined {
    if (ending.kind !== 'returned' && ending.kind !== 'answered') return undefined;
    try {
      return this.#text.encode(ending);
    } catch (error) {
      this.#tellOnce('kept', error);
      return undefined;
    }
  }

  #recall(outcome: string | undefined, caller: Caller): Replay | undefined {
    if (outcome === undefined) return undefined;
    try {
      return this.#text.decode(outcome, caller);
    } catch (error) {
      this.#tellOnce('read', error);
      return undefined;
    }
  }

  #tellOnce(done: 'kept' | 'read', error: unknown): void {
    if (this.#told.has(done)) return;
    this.#told.add(done);
    this.settings.warn(
      `an answer could not be ${done} (${describeThrown(error)}), so duplicates of such calls get DuplicateError instead of it`,
    );
  }
}
