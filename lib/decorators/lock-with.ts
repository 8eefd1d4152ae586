import type { KeyFunction, StaticKey } from '../keys/key-resolver.js';
import type { LockOptions } from '../policies/options.js';
import type { PolicyDecorator, Skips } from './guarded-method.js';
import { policyDecorator } from './policy-decorator.js';

/**
 * Lets one run of a key at a time into the method, in every process that shares the store. The
 * lease is held from before the body until the envelope ends, whatever the outcome, and outlives a
 * crashed holder by at most `ttl`.
 *
 * Forms: `(key, options?)`, `(options)`, `()` inherits as it is, `(false)` turns an inherited lock off.
 * Without a key there is one lease for the whole task.
 *
 * @param key who shares one lease; see the forms of keys in the README
 * @returns a decorator for a method that returns a Promise or an Observable, or for a class
 * @throws DefinitionError for unknown options or values of the wrong kind, while the class is defined
 */
export function LockWith(off?: false): PolicyDecorator;
export function LockWith<A extends readonly unknown[], const O extends LockOptions = LockOptions>(
  key: KeyFunction<A>,
  options?: O,
): PolicyDecorator<A, Skips<O, 'onBusy'>>;
export function LockWith<const O extends LockOptions>(
  options: O,
): PolicyDecorator<readonly [], Skips<O, 'onBusy'>>;
export function LockWith<const O extends LockOptions = LockOptions>(
  key: StaticKey,
  options?: O,
): PolicyDecorator<readonly [], Skips<O, 'onBusy'>>;
export function LockWith(...written: unknown[]): PolicyDecorator {
  return policyDecorator('lock', written as []) as PolicyDecorator;
}
