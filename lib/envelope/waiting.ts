import type { EnterReply } from '../store/store.js';
import {
  announceAdmitted,
  type AskingRing,
  hold,
  type Refusal,
  refuseBy,
  refusedRing,
  storeFailed,
} from './verdict.js';
import type { Run } from './run.js';
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
 * Tries again until the lock is granted or its `wait` is used up. Whoever waits holds nothing, and
 * pays the rate limit no second time. A pause ends no later than the budget, and no later than the
 * moment at which the store says the lease runs out.
 */
export async function waitForTurn(
  run: Run,
  asking: readonly AskingRing[],
  busy: AskingRing,
  firstReply: EnterReply,
): Promise<Refusal | undefined> {
  const { waiters } = run.runtime;
  waiters.set(busy.key, (waiters.get(busy.key) ?? 0) + 1);
  try {
    return await tryAgain(run, asking, busy, firstReply);
  } finally {
    const left = (waiters.get(busy.key) ?? 1) - 1;
    if (left > 0) waiters.set(busy.key, left);
    else waiters.delete(busy.key);
  }
}

async function tryAgain(
  run: Run,
  asking: readonly AskingRing[],
  busy: AskingRing,
  firstReply: EnterReply,
): Promise<Refusal | undefined> {
  const { clock, waiters } = run.runtime;
  const repeated = asking.filter(({ policy }) => policy.repeatedWhileWaiting);
  const until = clock.now() + busy.policy.waitMs;
  let refused = { ring: busy, reply: firstReply };
  for (let longest = FIRST_PAUSE_MS; ; longest = Math.min(longest * 2, LONGEST_PAUSE_MS)) {
    const left = until - clock.now();
    if (left <= 0) break;
    const crowd = (waiters.get(busy.key) ?? 1) * PAUSE_PER_WAITER_MS;
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
    if (!again) {
      for (const [position, ring] of repeated.entries()) {
        announceAdmitted(run, ring, replies[position] as EnterReply);
      }
      hold(run, repeated);
      return undefined;
    }
    refused = again;
    if (again.ring.policy.waitMs <= 0) break;
  }
  const { policy, key } = refused.ring;
  return refuseBy(run, policy, policy.refusal(key, refused.reply));
}

/** Spreads the tries of many waiters (equal jitter: half fixed, half random). */
function jitter(longest: number): number {
  return longest / 2 + Math.random() * (longest / 2);
}

function remainingMs(reply: EnterReply): number {
  return reply.kind === 'lease' && reply.remainingMs !== undefined ? reply.remainingMs : Infinity;
}
