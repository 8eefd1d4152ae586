import { andThen, type Awaitable, isThenable } from '../awaitable.js';
import {
  InvalidKeyError,
  KeyMissingError,
  type PolicyName,
  type RefusalError,
  type RefusalMetadata,
  StoreUnavailableError,
} from '../errors/refusals.js';
import { isStoreError } from '../errors/store.error.js';
import { isKeyProblem } from '../keys/key-resolver.js';
import { toSegment } from '../keys/store-key.js';
import type { OwnPolicy, StorePolicy } from '../policies/policy.js';
import type { EnterReply, EnterStep } from '../store/store.js';
import type { PlannedRing } from './plan.js';
import type { Run } from './run.js';
import { waitForTurn } from './waiting.js';

/** A policy said no. The body does not run. */
export interface Refusal {
  readonly metadata: RefusalMetadata;
  readonly skip: boolean;
  /** Made only when it is thrown: a stack costs more than a whole decision. */
  readonly error: () => RefusalError;
}

/** Whether and under which key a ring applies to an invocation. */
type Resolution =
  | { readonly applies: false; readonly blank: boolean }
  | { readonly applies: true; readonly key: string };

/** A ring of a batch, with what it asks of the store. */
export interface AskingRing {
  readonly policy: StorePolicy;
  readonly key: string;
  readonly step: EnterStep;
}

/** A ring whose key is blank. */
interface SteppedAside {
  readonly bypassed: PolicyName;
}

/** A ring that needs the store. */
interface NeedsStore {
  readonly policy: StorePolicy | OwnPolicy;
}

/** Rings that can be entered in one go. */
interface Batch {
  /** In ring order: what asks the store, and what stepped aside. */
  readonly items: (AskingRing | SteppedAside)[];
  readonly asking: AskingRing[];
  /** A limiter that decides on its own, after the store's answer. */
  own: { readonly policy: OwnPolicy; readonly key: string } | undefined;
  /** The resolution of the ring at `next` is under way. */
  pending: Promise<Resolution> | undefined;
  /** The ring at `next` cannot be resolved. Told only after the rings before it have let pass. */
  failure: { readonly error: unknown } | undefined;
  /** Where the following batch begins. */
  next: number;
}

const STEPS_ASIDE: Resolution = Object.freeze({ applies: false, blank: false });
const BLANK: Resolution = Object.freeze({ applies: false, blank: true });

/**
 * Enters the rings from the outside in, with as few store trips as possible: all rings whose keys
 * are known at once share one.
 *
 * @returns the refusal, or nothing when all rings let pass
 * @throws what a gate, a key function or a limiter threw, or a refusal that only throws
 */
export function enterRings(run: Run): Awaitable<Refusal | undefined> {
  return enterFrom(run, 0);
}

function enterFrom(run: Run, from: number, first?: Resolution): Awaitable<Refusal | undefined> {
  if (from >= run.plan.rings.length) return undefined;
  const batch = gather(run, from, first);
  return andThen(askStore(run, batch), (refusal) => refusal ?? enterRest(run, batch));
}

function enterRest(run: Run, batch: Batch): Awaitable<Refusal | undefined> {
  if (batch.own) {
    const { policy, key } = batch.own;
    return decide(run, policy, key).then((refusal) => refusal ?? enterFrom(run, batch.next));
  }
  if (batch.failure) throw batch.failure.error;
  if (batch.pending) {
    return batch.pending.then((resolution) => enterFrom(run, batch.next, resolution));
  }
  return enterFrom(run, batch.next);
}

/** Resolves gates and keys ring by ring, up to the first that has to be waited for. */
function gather(run: Run, from: number, first: Resolution | undefined): Batch {
  const { rings } = run.plan;
  const batch: Batch = {
    items: [],
    asking: [],
    own: undefined,
    pending: undefined,
    failure: undefined,
    next: from,
  };
  for (; batch.next < rings.length; batch.next++) {
    const ring = rings[batch.next] as PlannedRing;
    const known = batch.next === from ? first : undefined;
    // Something asynchronous must not even be started before the outer rings have let pass.
    if (!known && ring.async && batch.asking.length > 0) return batch;
    let resolution: Awaitable<Resolution>;
    try {
      resolution = known ?? resolve(ring, run);
    } catch (error) {
      batch.failure = { error };
      return batch;
    }
    if (resolution instanceof Promise) {
      resolution.catch(() => undefined);
      batch.pending = resolution;
      return batch;
    }
    if (resolution.applies && ring.policy.own && batch.asking.length > 0) {
      batch.pending = Promise.resolve(resolution);
      return batch;
    }
    add(batch, ring, resolution, run);
    if (batch.own) {
      batch.next += 1;
      return batch;
    }
  }
  return batch;
}

function add(batch: Batch, ring: PlannedRing, resolution: Resolution, run: Run): void {
  const { policy } = ring;
  if (!resolution.applies) {
    if (resolution.blank) batch.items.push({ bypassed: policy.policy });
  } else if (policy.own) {
    batch.own = { policy, key: resolution.key };
  } else {
    const asking = { policy, key: resolution.key, step: policy.request(resolution.key, run) };
    batch.items.push(asking);
    batch.asking.push(asking);
  }
}

/** @throws what a gate or key threw; a refusal for a blank or impossible key */
function resolve(ring: PlannedRing, run: Run): Awaitable<Resolution> {
  return ring.gates.length === 0
    ? resolveKey(ring, run)
    : andThen(passesGates(ring, run, 0), (passes) =>
        passes ? resolveKey(ring, run) : STEPS_ASIDE,
      );
}

function passesGates(ring: PlannedRing, run: Run, position: number): Awaitable<boolean> {
  const gate = ring.gates[position];
  if (!gate) return true;
  const goOn = (answer: unknown): Awaitable<boolean> =>
    Boolean(answer) === gate.wanted && passesGates(ring, run, position + 1);
  const answer = gate.read(run);
  return isThenable(answer) ? Promise.resolve(answer).then(goOn) : goOn(answer);
}

function resolveKey(ring: PlannedRing, run: Run): Awaitable<Resolution> {
  if (!ring.key) return { applies: true, key: ring.keyBase };
  try {
    const value = ring.key.read(run);
    return isThenable(value)
      ? Promise.resolve(value).then(
          (settled) => toResolution(ring, run, settled),
          (error) => rethrowKeyProblem(ring, run, error),
        )
      : toResolution(ring, run, value);
  } catch (error) {
    return rethrowKeyProblem(ring, run, error);
  }
}

function toResolution(ring: PlannedRing, run: Run, value: unknown): Resolution {
  let segment: string | undefined;
  try {
    segment = toSegment(value);
  } catch (error) {
    return rethrowKeyProblem(ring, run, error);
  }
  if (segment !== undefined) return { applies: true, key: `${ring.keyBase}:${segment}` };
  if (ring.onBlank === 'bypass') return BLANK;
  throw new KeyMissingError(
    { code: 'key_missing', policy: ring.policy.policy },
    run,
    isFromRequest(ring, run),
  );
}

function rethrowKeyProblem(ring: PlannedRing, run: Run, error: unknown): never {
  if (!isKeyProblem(error)) throw error;
  throw new InvalidKeyError(
    { code: 'key_invalid', policy: ring.policy.policy },
    run,
    isFromRequest(ring, run),
    error.message,
  );
}

/** A handler's arguments are the request's, so a wrong one is the client's fault. */
function isFromRequest(ring: PlannedRing, run: Run): boolean {
  return run.handler !== undefined || ring.key?.fromRequest === true;
}

function askStore(run: Run, batch: Batch): Awaitable<Refusal | undefined> {
  if (batch.asking.length === 0) {
    announce(run, batch.items, []);
    return undefined;
  }
  const steps = batch.asking.map((ring) => ring.step);
  let replies: Awaitable<EnterReply[]>;
  try {
    replies = run.runtime.enterStore(steps);
  } catch (error) {
    return storeFailed(run, batch.items, error);
  }
  return replies instanceof Promise
    ? replies.then(
        (settled) => judge(run, batch, settled),
        (error) => storeFailed(run, batch.items, error),
      )
    : judge(run, batch, replies);
}

function judge(
  run: Run,
  batch: Batch,
  replies: readonly EnterReply[],
): Awaitable<Refusal | undefined> {
  announce(run, batch.items, replies);
  const refused = refusedRing(batch.asking, replies);
  if (!refused) {
    hold(run, batch.asking);
    return undefined;
  }
  const { policy } = refused.ring;
  const metadata = policy.refusal(refused.ring.key, refused.reply);
  const holder = refused.reply.kind === 'lease' ? refused.reply.holder : undefined;
  if (policy.waitMs > 0 && !run.isHeldByChain(holder)) {
    return waitForTurn(run, batch.asking, refused.ring, refused.reply);
  }
  return refuseBy(run, policy, metadata);
}

/** The ring whose answer, the last one, is a no. */
export function refusedRing(
  asking: readonly AskingRing[],
  replies: readonly EnterReply[],
): { readonly ring: AskingRing; readonly reply: EnterReply } | undefined {
  const last = replies.length - 1;
  const reply = replies[last];
  const ring = asking[last];
  return reply && ring && !reply.admitted ? { ring, reply } : undefined;
}

/** Keeps what the store has granted. A refused trip has granted nothing that lasts. */
export function hold(run: Run, asking: readonly AskingRing[]): void {
  for (const { policy, step } of asking) {
    const leave = policy.giveBack(step);
    if (leave) run.holds.push(leave);
    run.lock = policy.held(step) ?? run.lock;
  }
}

/** Tells a refusal, then makes it. */
export function refuseBy(
  run: Run,
  policy: StorePolicy | OwnPolicy,
  metadata: RefusalMetadata,
): Refusal {
  const { telemetry } = run.runtime;
  if (telemetry.hears(policy.refusedEvent)) {
    telemetry.emit(policy.refusedEvent, run, metadata as never);
  }
  return {
    metadata,
    skip: policy.onRefusal === 'skip',
    error: () => policy.refuse(metadata, run),
  };
}

/** Tells, in ring order, which rings let pass and which stepped aside, up to the first refusal. */
function announce(run: Run, items: Batch['items'], replies: readonly EnterReply[]): void {
  let position = 0;
  for (const item of items) {
    if ('bypassed' in item) {
      announceBypass(run, item);
      continue;
    }
    const reply = replies[position++];
    if (!reply?.admitted) return;
    announceAdmitted(run, item, reply);
  }
}

export function announceAdmitted(run: Run, ring: AskingRing, reply: EnterReply): void {
  const { telemetry } = run.runtime;
  const { policy } = ring;
  if (telemetry.hears(policy.admittedEvent)) {
    telemetry.emit(policy.admittedEvent, run, policy.admitted(ring.key, reply) as never);
  }
}

async function decide(run: Run, policy: OwnPolicy, key: string): Promise<Refusal | undefined> {
  const { telemetry, store } = run.runtime;
  try {
    const decision = await policy.decide(key, run, store);
    if (!decision.admitted) return refuseBy(run, policy, decision.refusal);
    if (telemetry.hears(policy.admittedEvent)) {
      telemetry.emit(policy.admittedEvent, run, decision.payload as never);
    }
    return undefined;
  } catch (error) {
    if (!isStoreError(error)) throw error;
    return storeFailed(run, [{ policy }], error, 'limiter');
  }
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

function announceBypass(run: Run, item: NeedsStore | SteppedAside): void {
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
