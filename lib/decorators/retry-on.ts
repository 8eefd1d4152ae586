import type { ErrorSelection } from '../policies/error-matcher.js';
import type { RetryOptions } from '../policies/options.js';
import type { PolicyDecorator } from './guarded-method.js';
import { policyDecorator } from './policy-decorator.js';

/**
 * Runs the body again after certain errors, and only the body: the rate limit is charged once, the
 * lease and the claim are held over all attempts, the breaker gets one sample. Refusals, `skip()` and
 * `fail()` are never repeated, and nothing is once the invocation's signal has aborted: the caller
 * then gets what the body threw last.
 *
 * An error that says when to come back (`retryAfter` in seconds, or a response with `Retry-After`) is
 * believed instead of `delay`; when that is later than `maxDelay`, the body is not repeated.
 *
 * Forms: `(errors, options)`, `(errors)`, `(options)` on top of inherited errors, `()` inherits as it
 * is, `(false)` turns it off. Errors of base and subclass add up.
 *
 * @param errors a class, a predicate, or a list of them
 * @returns a decorator for a method that returns a Promise, or for a class
 * @throws DefinitionError for unknown options or values of the wrong kind, while the class is
 *   defined; at boot for an unknown jitter, or when no errors are named
 */
export function RetryOn(off?: false): PolicyDecorator;
export function RetryOn(errors: ErrorSelection, options?: RetryOptions): PolicyDecorator;
export function RetryOn(options: RetryOptions): PolicyDecorator;
export function RetryOn(...written: unknown[]): PolicyDecorator {
  return policyDecorator('retry', written as []) as PolicyDecorator;
}
