import type { PolicyName, RefusalError, RefusalMetadata, RefusalSite } from '../errors/refusals.js';
import type { HeldLock, Invocation } from '../invocation.js';
import type { EnterReply, EnterStep, LeaveStep, Store } from '../store/store.js';
import type { TelemetryEventName, TelemetryPayloads } from '../telemetry/events.js';

type Payload = TelemetryPayloads[TelemetryEventName];

interface PolicyBase {
  readonly policy: PolicyName;
  /** What a refusal does: throw, or let the call return `undefined`. */
  readonly onRefusal: 'fail' | 'skip';
  readonly onStoreError: 'fail' | 'run';
  /** Told when the policy lets pass. */
  readonly admittedEvent: TelemetryEventName;
  /** Told, with the refusal's metadata, when it does not. */
  readonly refusedEvent: TelemetryEventName;
  refuse(metadata: RefusalMetadata, site: RefusalSite): RefusalError;
}

/**
 * One ring of the envelope. A policy only *describes*: what it wants from the store, and what an
 * answer means. It never calls the store, waits or throws by itself, with one exception: see
 * {@link OwnPolicy}.
 */
export interface StorePolicy extends PolicyBase {
  readonly own: false;
  /** Milliseconds that a refused caller may wait for another try. */
  readonly waitMs: number;
  /** Whether a caller who waits takes this step again at each try. A charge is taken once. */
  readonly repeatedWhileWaiting: boolean;
  /** What to ask of the store. */
  request(key: string, invocation: Invocation): EnterStep;
  /** The payload of `admittedEvent`, for an answer that lets pass. */
  admitted(key: string, reply: EnterReply): Payload;
  /** Why not, for an answer that does not. */
  refusal(key: string, reply: EnterReply): RefusalMetadata;
  /** What to give back in the end, for a step that was admitted. */
  giveBack(step: EnterStep): LeaveStep | undefined;
  /** What the invocation shows of a step that was admitted. */
  held(step: EnterStep): HeldLock | undefined;
}

/** What a policy that decides on its own has decided. */
export type Decision =
  | { readonly admitted: true; readonly payload: Payload }
  | { readonly admitted: false; readonly refusal: RefusalMetadata };

/** A ring that decides on its own, and so cannot share a store trip with others. */
export interface OwnPolicy extends PolicyBase {
  readonly own: true;
  decide(key: string, invocation: Invocation, store: Store): Promise<Decision>;
}

export type Policy = StorePolicy | OwnPolicy;
