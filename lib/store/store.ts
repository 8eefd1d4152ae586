import type { Awaitable } from '../awaitable.js';
import { type Clock, SystemClock } from '../clock/clock.js';
import type { Deadline } from '../clock/deadline.js';
import type { Duration } from '../clock/duration.js';
import { once } from '../process-wide.js';

/**
 * Counts one start in a window that begins at its first start and is never extended; denied starts
 * count too. Admits while the count, this start included, is at most `max`.
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
 * stored level (rounded up to a millisecond) as its ttl.
 */
export interface LeakyBucketStep {
  readonly kind: 'leaky_bucket';
  readonly key: string;
  readonly capacityUs: number;
  readonly costUs: number;
}

/**
 * Takes a lease: stores `token` under `key` for `ttlMs`, if nobody else holds it. The own token is
 * accepted again (a lost reply must not lock its sender out) and starts the ttl anew.
 */
export interface LeaseStep {
  readonly kind: 'lease';
  readonly key: string;
  readonly token: string;
  /** Whole milliseconds, at least 1. */
  readonly ttlMs: number;
}

export type EnterStep = FixedWindowStep | LeakyBucketStep | LeaseStep;

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

export type EnterReply = FixedWindowReply | LeakyBucketReply | LeaseReply;

/** Deletes the lease if `token` still holds it. */
export interface ReleaseStep {
  readonly kind: 'release';
  readonly key: string;
  readonly token: string;
  /** The lease's own ttl in milliseconds: how long giving it back later still makes sense. */
  readonly ttlMs: number;
}

export type LeaveStep = ReleaseStep;

export interface ReleaseReply {
  readonly kind: 'release';
  /** Whether the lease was still held by the token. */
  readonly released: boolean;
}

export type LeaveReply = ReleaseReply;

/** What `inspect` tells about a key. */
export interface KeyReport {
  readonly value: string;
  /** Seconds. */
  readonly remainingTtl: number;
}

/**
 * The shared state of the policies: a few records with a time to live, and steps that read and
 * change them atomically.
 *
 * **The contract of `enter`.** The steps run in order, as one atomic unit, and stop at the first
 * refusal: there is one reply per step that ran, and only the last may be a refusal. Leases taken
 * earlier in a refused call are given back; charges of a rate limit are not. Times are the store's
 * own. A call that reaches the store after its deadline changes nothing and rejects with a
 * `StoreError` (`late`); every call settles by its deadline, whatever the driver does. When the
 * answer of a call may have been lost after the store executed it, the store gives the lease back
 * in the background.
 *
 * **The contract of `leave`.** All steps run. Each acts only on what its token still holds, so
 * giving back twice, or what was never granted, changes nothing. It settles within the timeout; a
 * call that failed is sent again in the background until the hold's own ttl has passed.
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

  /** For operators: what is stored under `key`, and for how long. */
  async inspect(key: string): Promise<KeyReport | undefined> {
    const [value, remainingTtl] = await Promise.all([this.get(key), this.remainingTtl(key)]);
    return value === undefined || remainingTtl === undefined ? undefined : { value, remainingTtl };
  }

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
