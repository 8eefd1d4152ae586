import type { Answer, Caller, Replay } from '../answer.js';
import type { PolicyName, RefusalError, RefusalMetadata, RefusalSite } from '../errors/refusals.js';
import type { HeldLock, Invocation } from '../invocation.js';
import type { EnterReply, EnterStep, Hold, LeaveReply, LeaveStep, Store } from '../store/store.js';
import type { TelemetryEventName, TelemetryPayloads } from '../telemetry/events.js';

type Payload = TelemetryPayloads[TelemetryEventName];

/** A no: what it is told as, and what the caller gets. */
export interface Refused {
  readonly metadata: RefusalMetadata;
  /** Told with the metadata. */
  readonly event: TelemetryEventName;
  /** Whether the call returns `undefined` instead of throwing. */
  readonly skip: boolean;
  /** What the call returns instead of either. */
  readonly replay?: Replay | undefined;
}

/** How an invocation ended; what it means for each policy is in the outcome table. */
export type Ending =
  | {
      readonly kind: 'returned';
      readonly value: unknown;
      /** Whether it is what the interceptors of a handler have left of it, for a client to see. */
      readonly handled: boolean;
    }
  | { readonly kind: 'answered'; readonly answer: Answer }
  | {
      readonly kind:
        'unanswered' | 'server_error' | 'output_invalid' | 'skipped' | 'failed' | 'unused';
    }
  | {
      readonly kind:
        | 'input_invalid'
        | 'refused'
        | 'nested_output_invalid'
        | 'conflict'
        | 'in_doubt'
        | 'client_error'
        | 'aborted'
        | 'threw';
      readonly error: unknown;
    };

/** Something to tell the subscribers of the telemetry. */
export interface PolicyEvent {
  readonly name: TelemetryEventName;
  readonly payload: Payload;
}

interface PolicyBase {
  readonly policy: PolicyName;
  /** Whether a refusal may let the call return `undefined`. */
  readonly canSkip: boolean;
  /** Whether a refusal may give an earlier answer again. */
  readonly canReplay: boolean;
  readonly onStoreError: 'fail' | 'run';
  /** Told when the policy lets pass. */
  readonly admittedEvent: TelemetryEventName;
  refuse(metadata: RefusalMetadata, site: RefusalSite): RefusalError;
}

/**
 * One ring of the envelope. A policy only *describes*: what it wants from the store, and what an
 * answer means. It never calls the store, waits or throws by itself, with one exception: see
 * {@link OwnPolicy}.
 */
export interface StorePolicy extends PolicyBase {
  readonly own: false;
  /** Whether a caller who waits takes this step again at each try. A charge is taken once. */
  readonly repeatedWhileWaiting: boolean;
  /** Whether passing is told once in an invocation, however often it has to be asked again. */
  readonly admittedOnce: boolean;
  /** Milliseconds that a caller with this answer may wait for another one; counted from the first no. */
  patienceMs(reply: EnterReply): number;
  /**
   * What to ask of the store.
   *
   * @param fingerprint a digest of what the caller wants done, if the ring makes one
   */
  request(key: string, invocation: Invocation, fingerprint?: string): EnterStep;
  /** The payload of `admittedEvent`, for an answer that lets pass; `undefined` when there is nothing to tell. */
  admitted(key: string, reply: EnterReply): Payload | undefined;
  /**
   * Why not, for an answer that does not.
   *
   * @param caller who would be given an earlier answer again
   */
  refusal(key: string, reply: EnterReply, caller: Caller): Refused;
  /** What to send in the end, for a step that was admitted. */
  giveBack(step: EnterStep, reply: EnterReply, ending: Ending): LeaveStep | undefined;
  /** What to tell about the answer to it. */
  gaveBack(reply: EnterReply, step: LeaveStep, answer: LeaveReply): PolicyEvent | undefined;
  /** What the invocation shows of a step that was admitted. */
  held(step: EnterStep): HeldLock | undefined;
  /** What has to be kept alive while the body runs. */
  keptAlive(step: EnterStep): Hold | undefined;
}

/** What a policy that decides on its own has decided. */
export type Decision =
  | { readonly admitted: true; readonly payload: Payload }
  | { readonly admitted: false; readonly refused: Refused };

/** A ring that decides on its own, and so cannot share a store trip with others. */
export interface OwnPolicy extends PolicyBase {
  readonly own: true;
  decide(key: string, invocation: Invocation, store: Store): Promise<Decision>;
}

export type Policy = StorePolicy | OwnPolicy;
