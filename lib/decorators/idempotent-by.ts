import type { KeyFunction, StaticKey } from '../keys/key-resolver.js';
import type { IdempotencyOptions } from '../policies/options.js';
import type { PolicyDecorator, Skips } from './guarded-method.js';
import { policyDecorator } from './policy-decorator.js';

type MaySkip<O> = Skips<O, 'onDuplicate'> extends true ? true : Skips<O, 'onInProgress'>;

/**
 * Lets the work of a key be done once. The first call claims the key, runs, and its answer is kept
 * for `ttl`; a call with the same key afterwards gets that answer and runs nothing. A body that
 * throws, skips or fails gives the key back. What became of a run whose process died is not known:
 * `onAbandoned` says what the next call does then.
 *
 * Forms: `(key, options)`, `(options)` on top of an inherited key, `()` inherits as it is, `(false)`
 * turns it off.
 *
 * @param key whose work is the same work; see the forms of keys in the README. One made only of
 *   headers needs the option `scope`
 * @returns a decorator for a method that returns a Promise, or for a class
 * @throws DefinitionError for unknown options or values of the wrong kind, while the class is
 *   defined; at boot when there is no key, a `scope` is missing, or the answers cannot be kept
 */
export function IdempotentBy(off?: false): PolicyDecorator;
export function IdempotentBy<
  A extends readonly unknown[],
  const O extends IdempotencyOptions = IdempotencyOptions,
>(key: KeyFunction<A>, options?: O): PolicyDecorator<A, MaySkip<O>>;
export function IdempotentBy<const O extends IdempotencyOptions>(
  options: O,
): PolicyDecorator<readonly [], MaySkip<O>>;
export function IdempotentBy<const O extends IdempotencyOptions = IdempotencyOptions>(
  key: StaticKey,
  options?: O,
): PolicyDecorator<readonly [], MaySkip<O>>;
export function IdempotentBy(...written: unknown[]): PolicyDecorator {
  return policyDecorator('idempotency', written as []) as PolicyDecorator;
}
