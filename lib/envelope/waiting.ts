import type { EnterReply } from '../store/store.js';
import { UNUSED } from './endings.js';
import { leave } from './leaving.js';
import {
  announceAdmitted,
  hold,
  patienceMs,
  type Refusal,
  type RefusedRing,
  refuseBy,
  refusedRing,
  storeFailed,
} from './verdict.js';
import type { AskingRing, Run } from './run.js';
import { unsubscribed } from './signals.js';

/** How long a caller sleeps between two tries, at first and at most; each sleep is at least half of it. */
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 200;
/**
 * The more callers of this process wait for one key, the longer each sleeps: together they ask the
 * store about every two milliseconds, and nobody sleeps longer than a second.
 */
const PAUSE_PER_WAITER_MS = 3;
const LONGEST_CROWDED_PAUSE_MS = 1_000;

/**
 * Tries again until the ring lets pass, says no for good, or its patience is used up. Whoever waits
 * holds nothing, not even what earlier trips have granted, and pays the rate limit no second time. A
 * pause ends no later than the budget, and no later than the moment at which the store says the
 * lease runs out.
 */
export async function waitForTurn(
  run: Run,
  asking: readonly AskingRing[],
  refused: RefusedRing,
): Promise<Refusal | undefined> {
  const earlier = run.holds.map(({ ring }) => ring);
  const left = leave(run, UNUSED);
  if (left) await left;
  const rings = [...earlier, ...asking];
  // Up to the one that said no they have passed once, and that was told.
  const announced = new Set(rings.slice(0, rings.indexOf(refused.ring)));
  const repeated = rings.filter(({ policy }) => policy.repeatedWhileWaiting);
  const { waiters } = run.runtime;
  const { key } = refused.ring;
  waiters.set(key, (waiters.get(key) ?? 0) + 1);
  try {
    return await tryAgain(run, repeated, announced, refused);
  } finally {
    const others = (waiters.get(key) ?? 1) - 1;
    if (others > 0) waiters.set(key, others);
    else waiters.delete(key);
  }
}

async function tryAgain(
  run: Run,
  repeated: readonly AskingRing[],
  announced: Set<AskingRing>,
  first: RefusedRing,
): Promise<Refusal | undefined> {
  const { clock, waiters } = run.runtime;
  const since = clock.now();
  const leftFor = (no: RefusedRing): number => since + patienceMs(run, no) - clock.now();
  let refused = first;
  let left = leftFor(first);
  for (let longest = FIRST_PAUSE_MS; left > 0; longest = Math.min(longest * 2, LONGEST_PAUSE_MS)) {
    const crowd = (waiters.get(first.ring.key) ?? 1) * PAUSE_PER_WAITER_MS;
    const pause = jitter(Math.max(longest, Math.min(crowd, LONGEST_CROWDED_PAUSE_MS)));
    await run.runtime.pause(run, Math.min(left, pause, remainingMs(refused.reply)));
    if (run.abandoned) throw unsubscribed();
    let replies: readonly EnterReply[];
    try {
      replies = await run.runtime.enterStore(repeated.map(({ step }) => step));
    } catch (error) {
      return storeFailed(run, repeated, error);
    }
    const again = refusedRing(repeated, replies);
    left = again ? leftFor(again) : 0;
    // What passes only on the way to another no is told when the answer is final.
    announce(run, repeated, replies, announced, left <= 0);
    if (!again) {
      hold(run, repeated, replies);
      return undefined;
    }
    refused = again;
  }
  const { policy, key } = refused.ring;
  return refuseBy(run, policy, policy.refusal(key, refused.reply, run.caller));
}

/** Tells each ring that lets pass: some once in the invocation, when the answer is final. */
function announce(
  run: Run,
  rings: readonly AskingRing[],
  replies: readonly EnterReply[],
  announced: Set<AskingRing>,
  final: boolean,
): void {
  for (const [position, ring] of rings.entries()) {
    const reply = replies[position];
    if (!reply?.admitted) continue;
    if (ring.policy.admittedOnce) {
      if (!final || announced.has(ring)) continue;
      announced.add(ring);
    }
    announceAdmitted(run, ring, reply);
  }
}

/** Spreads the tries of many waiters (equal jitter: half fixed, half random). */
function jitter(longest: number): number {
  return longest / 2 + Math.random() * (longest / 2);
}

function remainingMs(reply: EnterReply): number {
  return ('remainingMs' in reply && reply.remainingMs) || Infinity;
}
