import type { AnyClass } from '../metadata/method-name.js';
import { addLimiter } from '../metadata/policy-records.js';
import { BUILT_IN_LIMITERS, type Limiter } from '../policies/limiters/limiter.js';
import { checkRegistration } from './registration.js';

/**
 * Registers a limiter for the methods of one class and its subclasses, where it hides one of the
 * same name in `forRoot({ limiters })`.
 *
 * @param name what `@RateLimit({ limiter: name })` calls it; not the name of a built-in limiter
 * @param limiter answers a quota with an admission; `this` is the instance
 * @throws DefinitionError for a built-in or empty name, or when `limiter` is no function
 */
export function RegisterLimiter(name: string, limiter: Limiter): ClassDecorator {
  return (target) => {
    checkLimiter(name, limiter, `${target.name}: @RegisterLimiter`);
    addLimiter(target as unknown as AnyClass, name, limiter);
  };
}

/** @throws DefinitionError when the pair cannot be a registered limiter */
export function checkLimiter(name: unknown, limiter: unknown, site: string): void {
  checkRegistration(BUILT_IN_LIMITERS, name, limiter, site);
}
