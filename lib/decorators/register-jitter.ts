import type { AnyClass } from '../metadata/method-name.js';
import { addJitter } from '../metadata/policy-records.js';
import { BUILT_IN_JITTERS, type Jitter } from '../policies/jitters.js';
import { checkRegistration } from './registration.js';

/**
 * Registers a jitter for the methods of one class and its subclasses, where it hides one of the same
 * name in `forRoot({ jitters })`.
 *
 * @param name what `@RetryOn(errors, { jitter: name })` calls it; not the name of a built-in jitter
 * @param jitter answers seconds to sleep before a repetition
 * @throws DefinitionError for a built-in or empty name, or when `jitter` is no function
 */
export function RegisterJitter(name: string, jitter: Jitter): ClassDecorator {
  return (target) => {
    checkJitter(name, jitter, `${target.name}: @RegisterJitter`);
    addJitter(target as unknown as AnyClass, name, jitter);
  };
}

/** @throws DefinitionError when the pair cannot be a registered jitter */
export function checkJitter(name: unknown, jitter: unknown, site: string): void {
  checkRegistration(BUILT_IN_JITTERS, name, jitter, site);
}
