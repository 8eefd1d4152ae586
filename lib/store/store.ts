import type { Awaitable } from '../awaitable.js';
import { type Clock, SystemClock } from '../clock/clock.js';
import type { Deadline } from '../clock/deadline.js';
import type { Duration } from '../clock/duration.js';
import { once } from '../process-wide.js';
import type { CircuitState } from './circuit.js';

/**
 * Counts one start in a window that begins at its first start and is never extended; denied starts
 * count too. Admits while the count, this start included, is at most `max`.
 *
 * State: the count as a text under `key`. A whole number from 0 that somebody else has left there is
 * counted on from; any other text starts anew.
 */
export interface FixedWindowStep {
  readonly kind: 'fixed_window';
  readonly key: string;
  readonly max: number;
  /** Whole milliseconds, at least 1. */
  readonly windowMs: number;
}

/**
 * Pours `costUs` into a bucket that holds `capacityUs` and drains one microsecond of level per
 * microsecond of time. A level is an integer count of microseconds of drain, so nothing is lost to
 * floating point. Admits if the projected level fits; a denied start changes nothing.
 *
 * State: the text `"level:last_at"` under `key`, both in microseconds, with the drain time of the
 * stored level (rounded up to a millisecond) as its ttl. Any other text is an empty bucket.
 */
export interface LeakyBucketStep {
  readonly kind: 'leaky_bucket';
  readonly key: string;
  readonly capacityUs: number;
  readonly costUs: number;
}

/**
 * Takes a lease: stores `token` under `key` for `ttlMs`, if nobody else holds it. The own token is
 * accepted again (a lost reply must not lock its sender out) and starts the ttl anew. Whatever else
 * stands there is somebody's token.
 */
export interface LeaseStep {
  readonly kind: 'lease';
  readonly key: string;
  readonly token: string;
  /** Whole milliseconds, at least 1. */
  readonly ttlMs: number;
}

/**
 * Claims the work of a key, so that it is done once. What stands under the key decides:
 *
 * | record                          | answer                                              |
 * | ------------------------------- | --------------------------------------------------- |
 * | none                            | `claimed`, run 1                                    |
 * | in flight, own token            | `claimed` again (a lost reply), the lease starts anew |
 * | another fingerprint             | `mismatch`, whatever else is true                   |
 * | finished                        | `done` with the outcome, or `tombstone` without     |
 * | in flight                       | `in_progress`                                       |
 * | in flight, its lease ran out    | `abandoned`, or with `rerun` `claimed`, run + 1     |
 *
 * Fingerprints differ only where both sides have one. The record of a claim lives for `leaseMs` and
 * `ttlMs` together: after a crash it is remembered for `ttlMs` that somebody has begun.
 */
export interface ClaimStep {
  readonly kind: 'claim';
  readonly key: string;
  /** No `:` in it. */
  readonly token: string;
  /** How long the claim stands without a renewal. Whole milliseconds, at least 1. */
  readonly leaseMs: number;
  /** How long an outcome is remembered. Whole milliseconds, at least 1. */
  readonly ttlMs: number;
  /** A digest of what the caller wants done. No `:` in it. */
  readonly fingerprint?: string | undefined;
  readonly onAbandoned: 'fail' | 'rerun';
}

/**
 * Asks a circuit breaker whether a call may begin. Closed: yes. Open: no, until its time is over;
 * then it is half open, and lets `permits` probes in, no more. A probe that does not come back
 * within `probeMs` counts as lost, and its permit goes to the next caller.
 */
export interface CircuitStep {
  readonly kind: 'circuit';
  readonly key: string;
  /** Holds the permit of a probe. No `,` and no `;` in it. */
  readonly token: string;
  readonly permits: number;
  /** Whole milliseconds, at least 1. */
  readonly probeMs: number;
  /**
   * How long the breaker is remembered when nobody calls; one that has never opened no longer than
   * its window. Whole milliseconds.
   */
  readonly ttlMs: number;
  /** The permit is that of a call around this one, which alone gives it back. */
  readonly borrowed?: true;
}

export type EnterStep = FixedWindowStep | LeakyBucketStep | CircuitStep | LeaseStep | ClaimStep;

export interface FixedWindowReply {
  readonly kind: 'fixed_window';
  readonly admitted: boolean;
  /** Starts in this window, this one included. */
  readonly count: number;
  /** Whole milliseconds until the window ends, at least 1. */
  readonly remainingMs: number;
}

export interface LeakyBucketReply {
  readonly kind: 'leaky_bucket';
  readonly admitted: boolean;
  /** The level after this start if admitted, else the level it would have reached. */
  readonly levelUs: number;
  /** When denied: whole milliseconds, rounded up, until the same start fits. Otherwise 0. */
  readonly retryMs: number;
}

export interface LeaseReply {
  readonly kind: 'lease';
  readonly admitted: boolean;
  /** When denied: the token that holds the lease. */
  readonly holder?: string;
  /** When denied: whole milliseconds, at least 1, until the lease runs out. */
  readonly remainingMs?: number;
}

export interface ClaimReply {
  readonly kind: 'claim';
  readonly admitted: boolean;
  /** `claimed` if admitted; otherwise why not. */
  readonly state: 'claimed' | 'in_progress' | 'abandoned' | 'done' | 'tombstone' | 'mismatch';
  /** Which run of the key this is, or the record speaks of: 1, and one more after each takeover. */
  readonly run: number;
  /** When `done`: what `complete` was given. */
  readonly outcome?: string;
  /** When refused: the token of that run. */
  readonly holder?: string;
  /** When `in_progress`: whole milliseconds, at least 1, until its lease runs out. */
  readonly remainingMs?: number;
}

export interface CircuitReply {
  readonly kind: 'circuit';
  readonly admitted: boolean;
  readonly state: CircuitState;
  /** Handed to the outcome: one of an older epoch is dropped. */
  readonly epoch: number;
  /** When refused: whole milliseconds, at least 1, until a probe may be let in; absent when forced. */
  readonly retryMs?: number;
  /** Present in the answer that made the change. */
  readonly transition?: 'half_opened';
}

export type EnterReply =
  FixedWindowReply | LeakyBucketReply | CircuitReply | LeaseReply | ClaimReply;

/** Deletes the lease if `token` still holds it. */
export interface ReleaseStep {
  readonly kind: 'release';
  readonly key: string;
  readonly token: string;
  /** The lease's own ttl in milliseconds: how long giving it back later still makes sense. */
  readonly ttlMs: number;
}

/**
 * Ends a claim whose work is done: the outcome is remembered for `ttlMs`. Done by its own token even
 * after the lease ran out, if nobody took over; and where the record is gone altogether, if nobody
 * began anew. It never touches another owner's record.
 */
export interface CompleteStep {
  readonly kind: 'complete';
  readonly key: string;
  readonly token: string;
  /** The run that `enter` answered. */
  readonly run: number;
  readonly ttlMs: number;
  readonly fingerprint?: string | undefined;
  /** What a duplicate is answered with; without one it is told that the work is done, and no more. */
  readonly outcome?: string | undefined;
}

/** Drops a claim of which nothing came: the next call with the key is the first again. */
export interface UnclaimStep {
  readonly kind: 'unclaim';
  readonly key: string;
  readonly token: string;
  /** How long the record of a claim lives, in milliseconds: how long dropping it later still makes sense. */
  readonly ttlMs: number;
}

/**
 * Tells a circuit breaker how a call ended. Closed: it is counted, and the failure that makes the
 * rate too high opens the breaker. Half open: only the holder of a permit is heard; as many successes
 * as there are permits close it, one failure opens it for longer. An outcome of an older epoch
 * changes nothing.
 */
export interface OutcomeStep {
  readonly kind: 'outcome';
  readonly key: string;
  readonly token: string;
  /** What `enter` answered. */
  readonly epoch: number;
  readonly success: boolean;
  /** Between 0 and 1: with that many failures among the calls of the window it opens. */
  readonly failureRate: number;
  /** With fewer calls in the window it does not open. */
  readonly minimumCalls: number;
  /** Whole milliseconds, at least 10. */
  readonly windowMs: number;
  readonly permits: number;
  /** How long it stays open at first. Whole milliseconds. */
  readonly openMs: number;
  readonly maxOpenMs: number;
  /** A random number from 0 to below 1; spreads repeated opening times. */
  readonly jitter: number;
  /** See {@link CircuitStep}. */
  readonly ttlMs: number;
  /** Present when a probe ended: how long its permit lasts, in milliseconds. */
  readonly probeMs?: number;
}

/** Gives back a probe's permit that nothing was learned by. */
export interface UnpermitStep {
  readonly kind: 'unpermit';
  readonly key: string;
  readonly token: string;
  /** The probe's time in milliseconds: how long giving it back later still makes sense. */
  readonly ttlMs: number;
}

export type LeaveStep = ReleaseStep | CompleteStep | UnclaimStep | OutcomeStep | UnpermitStep;

export interface ReleaseReply {
  readonly kind: 'release';
  /** Whether the lease was still held by the token. */
  readonly released: boolean;
}

export interface CompleteReply {
  readonly kind: 'complete';
  /** `late`: the record was gone, and was made again; `stale`: somebody else's, nothing was changed. */
  readonly state: 'completed' | 'late' | 'stale';
}

export interface UnclaimReply {
  readonly kind: 'unclaim';
  /** `stale`: the key is somebody else's, or finished; nothing was changed. */
  readonly state: 'dropped' | 'absent' | 'stale';
}

export interface OutcomeReply {
  readonly kind: 'outcome';
  /** `stale`: of an older epoch, or of a probe that was given up; nothing was changed. */
  readonly state: 'counted' | 'stale';
  /** Present in the answer that made the change, with the new epoch. */
  readonly transition?: 'opened' | 'closed';
  readonly epoch?: number;
  /** When opened: the share of failures, and for how long it is open, in whole milliseconds. */
  readonly failureRate?: number;
  readonly retryMs?: number;
}

export interface UnpermitReply {
  readonly kind: 'unpermit';
  /** Whether the permit was still the token's. */
  readonly returned: boolean;
}

export type LeaveReply = ReleaseReply | CompleteReply | UnclaimReply | OutcomeReply | UnpermitReply;

/** A claim that its owner keeps alive. */
export interface Hold {
  readonly kind: 'claim';
  readonly key: string;
  readonly token: string;
  readonly leaseMs: number;
  readonly ttlMs: number;
}

/** What `inspect` tells about a key. */
export interface KeyReport {
  readonly value: string;
  /** Seconds. */
  readonly remainingTtl: number;
  /** The store's own time in whole milliseconds, by which the times in claims and breakers are counted. */
  readonly at: number;
}

/**
 * The shared state of the policies: a few records with a time to live, and steps that read and
 * change them atomically.
 *
 * **The contract of `enter`.** The steps run in order, as one atomic unit, and stop at the first
 * refusal: there is one reply per step that ran, and only the last may be a refusal. Permits, leases
 * and claims taken earlier in a refused call are given back; charges of a rate limit are not. Times are
 * the store's own. A call that reaches the store after its deadline changes nothing and rejects with
 * a `StoreError` (`late`); every call settles by its deadline, whatever the driver does. When the
 * answer of a call may have been lost after the store executed it, the store gives the permits, leases
 * and claims back in the background.
 *
 * **The contract of `leave`.** All steps run. Each acts only on what its token still holds, so
 * giving back twice, or what was never granted, changes nothing. It settles within the timeout; a
 * call that failed is sent again in the background until the hold's own ttl has passed, but for an
 * `outcome`, which might be counted twice: of a probe its permit is given back instead.
 *
 * **The records of claims and breakers** are one text each, which `get` and `inspect` show: see
 * `claimText` and `circuitText`. Where another text stands, `enter` rejects with a `StoreError`
 * (`error`), and `leave` leaves it alone.
 *
 * Every key has a ttl; a key that lost it is healed by the next step that meets it.
 */
abstract class StoreContract {
  /** Whether the state is this process's own, so that other processes are not coordinated. */
  readonly processLocal: boolean = false;
  protected clock: Clock = new SystemClock();
  protected timeoutMs = 1_000;

  /** Follows the module's clock. Called once, before the first step. */
  useClock(clock: Clock): void {
    this.clock = clock;
  }

  /** Follows the module's `storeTimeout`, in milliseconds. Called once, before the first step. */
  useTimeout(timeoutMs: number): void {
    this.timeoutMs = timeoutMs;
  }

  /** Runs the steps. @throws StoreError when there is no answer; nothing is known to be held then. */
  abstract enter(steps: readonly EnterStep[], deadline: Deadline): Awaitable<EnterReply[]>;

  /** Gives back what `enter` granted. @throws StoreError when it will be tried again later. */
  abstract leave(steps: readonly LeaveStep[]): Awaitable<LeaveReply[]>;

  /**
   * Starts the leases of claims anew; one that has run out, too, if nobody took over.
   *
   * @returns for each hold whether its token still owns the claim
   * @throws StoreError when there is no answer; nothing is known to be lost then
   */
  abstract renew(holds: readonly Hold[]): Promise<readonly boolean[]>;

  /** The text under `key`, `undefined` when there is none. */
  abstract get(key: string): Promise<string | undefined>;

  /** Stores a text. @returns false when `ifAbsent` is set and the key exists. */
  abstract set(
    key: string,
    value: string,
    options: { readonly ttl: Duration; readonly ifAbsent?: boolean },
  ): Promise<boolean>;

  /** Adds `by` (a whole number, default 1) and returns the sum. Sets `ttl` only when it creates the key. */
  abstract incr(
    key: string,
    options: { readonly by?: number; readonly ttl: Duration },
  ): Promise<number>;

  /** @returns whether the key was deleted; with `ifEquals` only if that is its text. */
  abstract delete(key: string, options?: { readonly ifEquals?: string }): Promise<boolean>;

  /** Seconds until the key expires, `undefined` when it does not exist. */
  abstract remainingTtl(key: string): Promise<number | undefined>;

  /** For operators: what is stored under `key`, for how long, and by which time. */
  abstract inspect(key: string): Promise<KeyReport | undefined>;

  /** For operators: drops the key, whoever holds it. @returns whether it existed. */
  forget(key: string): Promise<boolean> {
    return this.delete(key);
  }

  /** Starts to connect. Never waits for the server and never throws: the application boots without it. */
  open(): void {}

  /** Ends what the store itself opened; what it was handed stays open. */
  async close(): Promise<void> {}
}

/** See {@link StoreContract}; one class per process, whichever copy of the package is loaded. */
export const Store: typeof StoreContract = once('Store', () => StoreContract);
export interface Store extends StoreContract {}
