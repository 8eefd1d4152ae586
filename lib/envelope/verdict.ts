import type { Replay } from '../answer.js';
import { LeaseLostError } from '../errors/lease-lost.error.js';
import {
  type PolicyName,
  type RefusalError,
  type RefusalMetadata,
  StoreUnavailableError,
} from '../errors/refusals.js';
import { isStoreError } from '../errors/store.error.js';
import type { OwnPolicy, Refused, StorePolicy } from '../policies/policy.js';
import type { EnterReply } from '../store/store.js';
import { takesHold } from '../store/undo.js';
import type { Beat } from './heartbeat.js';
import type { AskingRing, Run } from './run.js';

/** A policy said no. The body does not run. */
export interface Refusal {
  readonly metadata: RefusalMetadata;
  readonly skip: boolean;
  /** What the caller gets instead of `undefined` or an error. */
  readonly replay?: Replay | undefined;
  /** Made only when it is thrown: a stack costs more than a whole decision. */
  readonly error: () => RefusalError;
}

/** A ring whose key is blank. */
export interface SteppedAside {
  readonly bypassed: PolicyName;
}

/** A ring that needs the store. */
export interface NeedsStore {
  readonly policy: StorePolicy | OwnPolicy;
}

/** A ring that said no, and its answer. */
export interface RefusedRing {
  readonly ring: AskingRing;
  readonly reply: EnterReply;
}

/** The ring whose answer, the last one, is a no. */
export function refusedRing(
  asking: readonly AskingRing[],
  replies: readonly EnterReply[],
): RefusedRing | undefined {
  const last = replies.length - 1;
  const reply = replies[last];
  const ring = asking[last];
  return reply && ring && !reply.admitted ? { ring, reply } : undefined;
}

/**
 * Milliseconds that the call may wait for another answer, counted from its first no. None where its
 * own chain holds the key: it would wait for itself.
 */
export function patienceMs(run: Run, { ring, reply }: RefusedRing): number {
  const holder = 'holder' in reply ? reply.holder : undefined;
  return run.isHeldByChain(holder) ? 0 : ring.policy.patienceMs(reply);
}

/** Keeps what the store has granted. A refused trip has granted nothing that lasts. */
export function hold(
  run: Run,
  asking: readonly AskingRing[],
  replies: readonly EnterReply[],
): void {
  for (let position = 0; position < asking.length; position++) {
    const ring = asking[position] as AskingRing;
    if (!takesHold(ring.step)) continue;
    run.holds.push({ ring, reply: replies[position] as EnterReply, beat: keepAlive(run, ring) });
    run.lock = ring.policy.held(ring.step) ?? run.lock;
  }
}

function keepAlive(run: Run, { policy, step }: AskingRing): Beat | undefined {
  const claim = policy.keptAlive(step);
  return (
    claim &&
    run.runtime.heartbeat.keep(claim, () => run.abort(new LeaseLostError(run.task, policy.policy)))
  );
}

/** Tells a refusal, then makes it. */
export function refuseBy(
  run: Run,
  policy: StorePolicy | OwnPolicy,
  { metadata, event, skip, replay }: Refused,
): Refusal {
  const { telemetry } = run.runtime;
  if (telemetry.hears(event)) telemetry.emit(event, run, metadata as never);
  return { metadata, skip, replay, error: () => policy.refuse(metadata, run) };
}

/** Tells that a ring let pass. */
export function announceAdmitted(run: Run, ring: AskingRing, reply: EnterReply): void {
  const { telemetry } = run.runtime;
  const { policy } = ring;
  if (!telemetry.hears(policy.admittedEvent)) return;
  const payload = policy.admitted(ring.key, reply);
  if (payload) telemetry.emit(policy.admittedEvent, run, payload as never);
}

/**
 * The body runs without the store's answer only if every ring that asked says so.
 *
 * @param items what shared the trip, in ring order: what stepped aside before the first ring that
 *   asked is told whatever becomes of the call, the rest only when the body runs
 */
export function storeFailed(
  run: Run,
  items: readonly (NeedsStore | SteppedAside)[],
  error: unknown,
  operation: 'enter' | 'limiter' = 'enter',
): Refusal | undefined {
  const { telemetry } = run.runtime;
  const asking = items.filter((item) => 'policy' in item);
  const policies = asking.map(({ policy }) => policy.policy);
  const first = items.findIndex((item) => 'policy' in item);
  items.slice(0, first).forEach((item) => announceBypass(run, item));
  if (telemetry.hears('store_error')) {
    telemetry.emit('store_error', run, { operation, policies, error });
  }
  if (asking.every(({ policy }) => policy.onStoreError === 'run')) {
    items.slice(first).forEach((item) => announceBypass(run, item));
    return undefined;
  }
  const metadata = {
    code: 'store_unavailable',
    operation,
    policies,
    reason: isStoreError(error) ? error.reason : 'error',
    retryAfter: 1,
  } as const;
  return { metadata, skip: false, error: () => new StoreUnavailableError(metadata, run, error) };
}

/** Tells that a ring stepped aside. */
export function announceBypass(run: Run, item: NeedsStore | SteppedAside): void {
  const { telemetry } = run.runtime;
  if (!telemetry.hears('policy_bypassed')) return;
  telemetry.emit(
    'policy_bypassed',
    run,
    'bypassed' in item
      ? { policy: item.bypassed, reason: 'blank' }
      : { policy: item.policy.policy, reason: 'store_error' },
  );
}
