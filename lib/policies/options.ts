import type { Duration } from '../clock/duration.js';
import type { Invocation } from '../invocation.js';
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
  /** Stands in the store key for the task, so that methods share one lease or bucket. No `:`. */
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

/** What `forRoot({ defaults })` may fill in: never a skip, which would change return types unseen. */
export interface PolicyDefaults {
  readonly lock?: Omit<LockOptions, 'onBusy' | 'name' | 'stream'> & { readonly onBusy?: 'fail' };
  readonly rateLimit?: Omit<RateLimitOptions, 'onLimit' | 'name' | 'stream'> & {
    readonly onLimit?: 'fail';
  };
}
