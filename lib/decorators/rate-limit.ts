import type { KeyFunction, StaticKey } from '../keys/key-resolver.js';
import type { RateLimitOptions } from '../policies/options.js';
import type { PolicyDecorator, Skips } from './guarded-method.js';
import { policyDecorator } from './policy-decorator.js';

/**
 * Counts starts at the door: once per call, before anything else, whatever becomes of the call
 * afterwards. When no start is left, the body does not run.
 *
 * Forms: `(key, options)`, `(options)`, `()` inherits as it is, `(false)` turns an inherited limit
 * off. Without a key, or with `perTask`, there is one bucket for the whole task.
 *
 * @param key who shares one bucket; see the forms of keys in the README
 * @returns a decorator for a method that returns a Promise or an Observable, or for a class
 * @throws DefinitionError for unknown options or values of the wrong kind, while the class is
 *   defined; at boot for an unknown limiter or when `max` or `per` is missing
 */
export function RateLimit(off?: false): PolicyDecorator;
export function RateLimit<
  A extends readonly unknown[],
  const O extends RateLimitOptions = RateLimitOptions,
>(key: KeyFunction<A>, options?: O): PolicyDecorator<A, Skips<O, 'onLimit'>>;
export function RateLimit<const O extends RateLimitOptions>(
  options: O,
): PolicyDecorator<readonly [], Skips<O, 'onLimit'>>;
export function RateLimit<const O extends RateLimitOptions = RateLimitOptions>(
  key: StaticKey,
  options?: O,
): PolicyDecorator<readonly [], Skips<O, 'onLimit'>>;
export function RateLimit(...written: unknown[]): PolicyDecorator {
  return policyDecorator('rateLimit', written as []) as PolicyDecorator;
}
