import type { KeyFunction, StaticKey } from '../keys/key-resolver.js';
import type { CircuitBreakerOptions } from '../policies/options.js';
import type { PolicyDecorator, Skips } from './guarded-method.js';
import { policyDecorator } from './policy-decorator.js';

/**
 * Stops calling a dependency that is sick. Failures are counted over a window, in the store, by all
 * processes together. When too many calls fail it opens: calls are refused without running the body.
 * After a while it is half open: a few probes run, and their outcome closes it or opens it for longer.
 *
 * One invocation is one sample, however often its body was repeated. Refusals of inner policies,
 * `skip()`, `fail()`, 4xx and aborts are no samples.
 *
 * Forms: `(key, options)`, `(options)`, `()` inherits as it is, `(false)` turns an inherited one off.
 * Without a key, or with `perTask`, the task has a breaker of its own. A literal text is the name of
 * what is protected: all methods with that name share one breaker.
 *
 * @param key which breaker; see the forms of keys in the README
 * @returns a decorator for a method that returns a Promise or an Observable, or for a class
 * @throws DefinitionError for unknown options or values of the wrong kind, while the class is
 *   defined; at boot when methods that share a breaker disagree about it
 */
export function CircuitBreaker(off?: false): PolicyDecorator;
export function CircuitBreaker<
  A extends readonly unknown[],
  const O extends CircuitBreakerOptions = CircuitBreakerOptions,
>(key: KeyFunction<A>, options?: O): PolicyDecorator<A, Skips<O, 'onOpen'>>;
export function CircuitBreaker<const O extends CircuitBreakerOptions>(
  options: O,
): PolicyDecorator<readonly [], Skips<O, 'onOpen'>>;
export function CircuitBreaker<const O extends CircuitBreakerOptions = CircuitBreakerOptions>(
  key: StaticKey,
  options?: O,
): PolicyDecorator<readonly [], Skips<O, 'onOpen'>>;
export function CircuitBreaker(...written: unknown[]): PolicyDecorator {
  return policyDecorator('circuitBreaker', written as []) as PolicyDecorator;
}
