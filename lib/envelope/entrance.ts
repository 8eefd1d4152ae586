import { andThen, type Awaitable } from '../awaitable.js';
import { isStoreError } from '../errors/store.error.js';
import type { OwnPolicy, StorePolicy } from '../policies/policy.js';
import type { EnterReply, EnterStep } from '../store/store.js';
import { checkInputs } from './checks.js';
import type { PlannedRing } from './plan.js';
import { type Resolution, resolve } from './resolution.js';
import type { AskingRing, Run } from './run.js';
import {
  announceAdmitted,
  announceBypass,
  hold,
  patienceMs,
  type Refusal,
  refuseBy,
  refusedRing,
  type SteppedAside,
  storeFailed,
} from './verdict.js';
import { waitForTurn } from './waiting.js';

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

/**
 * Checks the arguments, then enters the rings from the outside in, with as few store trips as possible: all rings whose keys
 * are known at once share one.
 *
 * @returns the refusal, or nothing when all rings let pass
 * @throws what a gate, a key function or a limiter threw, or a refusal that only throws
 */
export function enterRings(run: Run): Awaitable<Refusal | undefined> {
  return run.plan.inputs ? andThen(checkInputs(run), () => enterFrom(run, 0)) : enterFrom(run, 0);
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
      ring.async = true;
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
    const { key, fingerprint } = resolution;
    const asking = { policy, key, step: request(run, policy, key, fingerprint) };
    batch.items.push(asking);
    batch.asking.push(asking);
  }
}

/**
 * What a ring asks of the store. A nested call on a breaker that its own chain probes is part of that
 * probe: it needs no permit more, and the end of the outer call is the one sample.
 */
function request(
  run: Run,
  policy: StorePolicy,
  key: string,
  fingerprint: string | undefined,
): EnterStep {
  const step = policy.request(key, run, fingerprint);
  const token = step.kind === 'circuit' ? run.permitOfChain(key) : undefined;
  return token === undefined || step.kind !== 'circuit' ? step : { ...step, token, borrowed: true };
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
    hold(run, batch.asking, replies);
    return undefined;
  }
  const { ring, reply } = refused;
  if (patienceMs(run, refused) > 0) return waitForTurn(run, batch.asking, refused);
  return refuseBy(run, ring.policy, ring.policy.refusal(ring.key, reply, run.caller));
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

async function decide(run: Run, policy: OwnPolicy, key: string): Promise<Refusal | undefined> {
  const { telemetry, store } = run.runtime;
  try {
    const decision = await policy.decide(key, run, store);
    if (!decision.admitted) return refuseBy(run, policy, decision.refused);
    if (telemetry.hears(policy.admittedEvent)) {
      telemetry.emit(policy.admittedEvent, run, decision.payload as never);
    }
    return undefined;
  } catch (error) {
    if (!isStoreError(error)) throw error;
    return storeFailed(run, [{ policy }], error, 'limiter');
  }
}
