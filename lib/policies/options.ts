import type { Duration } from '../clock/duration.js';
import type { Invocation } from '../invocation.js';
import type { ErrorSelection } from './error-matcher.js';
import type { BuiltInJitter, Jitter } from './jitters.js';
import type { Limiter } from './limiters/limiter.js';

/** An object that decides whether a policy applies. */
export interface GateObject {
  call(invocation: Invocation): boolean | undefined | Promise<boolean | undefined>;
}

/**
 * Whether a policy applies to an invocation: a constant, the name of a method of the instance, a
 * function of the method's arguments (`this` = the instance), or an object with `call(invocation)`.
 */
export type Gate =
  | boolean
  | string
  | ((...args: never[]) => boolean | undefined | Promise<boolean | undefined>)
  // Every function has a `call`, which makes none of them a gate object.
  | (GateObject & { readonly apply?: never });

/** The options that every policy has. */
export interface CommonOptions {
  /** The policy applies only if this passes. Default: it applies. */
  readonly if?: Gate;
  /** The policy applies unless this passes; not evaluated when `if` already failed. */
  readonly unless?: Gate;
  /** First part of the store key. */
  readonly namespace?: string;
  /** Stands in the store key for the task, so that methods share leases, buckets or outcomes. No `:`. */
  readonly name?: string;
  /** What a blank key does: `'bypass'` (default) steps aside, `'fail'` refuses with `key_missing`. */
  readonly onBlank?: 'bypass' | 'fail';
  /** Whether the body runs without this policy when the store does not answer. Default `'fail'`. */
  readonly onStoreError?: 'fail' | 'run';
  /** The method returns an Observable: each subscription is one invocation. */
  readonly stream?: boolean;
}

export interface LockOptions extends CommonOptions {
  /** How long the lease survives a holder that never releases it. Default 300 s. */
  readonly ttl?: Duration;
  /** A budget of time to wait for the holder. `0` (default), `null` and `false` try once. */
  readonly wait?: Duration | null | false;
  /** A busy lock throws `LockBusyError` (`'fail'`, default) or lets the call return `undefined` (`'skip'`). */
  readonly onBusy?: 'fail' | 'skip';
}

export interface RateLimitOptions extends CommonOptions {
  /** Starts allowed per window, or the capacity of the bucket. `0` denies everything. */
  readonly max?: number;
  /** The window of `fixed_window`, or the time in which `leaky_bucket` leaks one unit. */
  readonly per?: Duration;
  /** `'fixed_window'` (default), `'leaky_bucket'`, a registered name, or a function. */
  readonly limiter?: string | Limiter;
  /** Units that one start costs; only limiters that read it do. Default 1. */
  readonly cost?: number;
  /** A full limit throws `RateLimitedError` (`'fail'`, default) or lets the call return `undefined` (`'skip'`). */
  readonly onLimit?: 'fail' | 'skip';
}

export interface CircuitBreakerOptions extends CommonOptions {
  /** It opens when that share of the calls in the window has failed. Above 0, at most 1. Default 0.5. */
  readonly failureRate?: number;
  /** With fewer calls in the window it does not open. Default 10. */
  readonly minimumCalls?: number;
  /** Over which time calls are counted, 10 ms at least. Default 60 s. */
  readonly window?: Duration;
  /** How long it stays open at first; twice as long, with jitter, each time that a probe fails. Default 30 s. */
  readonly openFor?: Duration;
  /** The longest time that it stays open after probes that failed, never less than `openFor`. Default 600 s. */
  readonly maxOpenFor?: Duration;
  /** How many probes are let in when it is half open, and have to succeed. Default 1. */
  readonly permits?: number;
  /** After that a probe that has not come back counts as lost, and another is let in. Default 60 s. */
  readonly probeTimeout?: Duration;
  /** An open breaker throws `CircuitOpenError` (`'fail'`, default) or lets the call return `undefined` (`'skip'`). */
  readonly onOpen?: 'fail' | 'skip';
  /** Errors that say nothing about the dependency, besides those that never do. */
  readonly ignore?: ErrorSelection;
  /** Errors that are failures although they would be ignored, for example one of 429. */
  readonly failOn?: ErrorSelection;
}

/**
 * Whether a body is repeated: a constant, the name of a method of the instance, a function of
 * `(error, attempt)` (`this` = the instance), or an object with `call(invocation, error, attempt)`.
 */
export type RetryGate =
  | boolean
  | string
  | ((...args: never[]) => boolean | undefined | Promise<boolean | undefined>)
  | ({
      call(
        invocation: Invocation,
        error: unknown,
        attempt: number,
      ): boolean | undefined | Promise<boolean | undefined>;
    } & { readonly apply?: never });

/** How strong a row lock is, from the one that excludes all others to the weakest. */
export const ROW_LOCK_MODES = ['update', 'no key update', 'share', 'key share'] as const;

export type RowLockMode = (typeof ROW_LOCK_MODES)[number];

export interface WithRowLockOptions {
  /** How strong the lock is. Default `'update'`. */
  readonly mode?: RowLockMode;
  /** How long to wait for a row that is locked. `0` gives up at once. Default 5 s. */
  readonly wait?: Duration;
  /** A locked row throws `RowLockedError` (`'fail'`, default) or lets the call return `undefined` (`'skip'`). */
  readonly onBusy?: 'fail' | 'skip';
  /** A row that is not there throws `RowMissingError` (`'fail'`, default) or is taken as it is (`'run'`). */
  readonly onMissing?: 'fail' | 'run';
  /** Of several rows, only those that nobody has locked. Default false. */
  readonly lockFree?: boolean;
  /** The row is locked only if this passes: else the body runs in no transaction of ours. */
  readonly if?: Gate;
  /** The row is locked unless this passes; not evaluated when `if` already failed. */
  readonly unless?: Gate;
}

export interface RetryOptions {
  /** Most repetitions. Default 3, so that the body runs at most four times; 0 turns repeating off. */
  readonly limit?: number;
  /** The sleep before a repetition. Default 0.5 s. */
  readonly delay?: Duration;
  /** How the sleeps grow and spread: a built-in or registered name, or a function. Default: not at all. */
  readonly jitter?: BuiltInJitter | (string & {}) | Jitter;
  /** The longest sleep. Default: none. */
  readonly maxDelay?: Duration;
  /** Asked with `(error, attempt)` before each sleep: repeats only if it passes. */
  readonly if?: RetryGate;
  /** Asked with `(error, attempt)` before each sleep: repeats unless it passes. */
  readonly unless?: RetryGate;
}

type ScopeValue = string | number | bigint | null | undefined;

interface ScopeResolver {
  call(invocation: Invocation): ScopeValue | Promise<ScopeValue>;
}

/**
 * Whose keys they are: `'shared'` by everybody, or anything that a key may be except a fixed text,
 * for example `fromRequest((request) => request.user.id)`.
 */
export type KeyScope =
  | 'shared'
  | ((...args: never[]) => ScopeValue | Promise<ScopeValue>)
  | (ScopeResolver & { readonly apply?: never })
  | (abstract new (...args: never[]) => ScopeResolver);

/**
 * What a call wants done, so that the same key with another payload is told apart: `'request'`
 * (method, route, parameters, query and parsed body), a function of the method's arguments or an
 * object with `call(invocation)`, whose answers are compared as JSON with sorted names; `undefined`
 * and `null` are compared with nothing. `false` compares nothing.
 */
export type Fingerprint =
  | false
  | 'request'
  | ((...args: never[]) => unknown)
  | ({ call(invocation: Invocation): unknown } & { readonly apply?: never });

/** Makes texts of return values, and values of these texts. */
export interface OutcomeCodec {
  /** @throws anything for a value that it cannot represent: the work is then remembered without it */
  encode(value: unknown): string;
  decode(text: string): unknown;
}

export interface IdempotencyOptions extends Omit<CommonOptions, 'stream'> {
  /** How long an outcome is remembered. Default 24 h. */
  readonly ttl?: Duration;
  /** How long a claim survives an owner that has died: a living one renews it. Default 60 s. */
  readonly lease?: Duration;
  /** Most time that `onInProgress: 'wait'` waits. Default 30 s. */
  readonly wait?: Duration;
  /**
   * A call whose work is done returns the first answer (`'replay'`, default), returns `undefined`
   * (`'skip'`) or throws `DuplicateError` (`'fail'`).
   */
  readonly onDuplicate?: 'replay' | 'skip' | 'fail';
  /**
   * A call whose work is being done throws `InProgressError` (`'fail'`, default), returns
   * `undefined` (`'skip'`) or waits for the outcome (`'wait'`).
   */
  readonly onInProgress?: 'fail' | 'skip' | 'wait';
  /**
   * A call after a run that never told how it ended throws `AbandonedError` (`'fail'`, default: at
   * most once) or runs again (`'rerun'`: at least once).
   */
  readonly onAbandoned?: 'fail' | 'rerun';
  /** Default: `'request'` on HTTP handlers whose key is made of a header, else `false`. */
  readonly fingerprint?: Fingerprint;
  /** Demanded for a key that is made only of what a client writes into headers. */
  readonly scope?: KeyScope;
  /** Default: JSON that also keeps Date, bigint, Buffer, Map, Set and the like. */
  readonly codec?: OutcomeCodec;
  /**
   * The class of what the method returns: one instance, or an array of them. Properties are kept, so
   * it is not for a class with `#private` fields.
   */
  readonly returns?: abstract new (...args: never[]) => object;
  /** The largest outcome that is kept, encoded; a larger one is remembered as done. Default 64 KiB. */
  readonly maxBytes?: number;
}

/** What `forRoot({ defaults })` may fill in: never a skip, which would change return types unseen. */
export interface PolicyDefaults {
  readonly lock?: Omit<LockOptions, 'onBusy' | 'name' | 'stream'> & { readonly onBusy?: 'fail' };
  readonly rateLimit?: Omit<RateLimitOptions, 'onLimit' | 'name' | 'stream'> & {
    readonly onLimit?: 'fail';
  };
  readonly circuitBreaker?: Omit<CircuitBreakerOptions, 'onOpen' | 'name' | 'stream'> & {
    readonly onOpen?: 'fail';
  };
  readonly retry?: Omit<RetryOptions, 'if' | 'unless'>;
  readonly rowLock?: Omit<WithRowLockOptions, 'onBusy'> & { readonly onBusy?: 'fail' };
  /** `scope` is filled in only where one is demanded. */
  readonly idempotency?: Omit<
    IdempotencyOptions,
    'onDuplicate' | 'onInProgress' | 'name' | 'returns'
  > & {
    readonly onDuplicate?: 'replay' | 'fail';
    readonly onInProgress?: 'fail' | 'wait';
  };
}
