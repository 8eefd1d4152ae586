import { DefinitionError, show } from '../errors/definition.error.js';
import type { AnyClass } from '../metadata/method-name.js';
import { addJitter } from '../metadata/policy-records.js';
import { BUILT_IN_JITTERS, isBuiltInJitter, type Jitter } from '../policies/jitters.js';

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
  if (typeof name !== 'string' || name === '' || isBuiltInJitter(name)) {
    throw new DefinitionError(
      `${site}: expected a name other than ${BUILT_IN_JITTERS.join(', ')}, got ${show(name)}`,
    );
  }
  if (typeof jitter !== 'function') {
    throw new DefinitionError(`${site}("${name}"): expected a function, got ${show(jitter)}`);
  }
}
