import { DefinitionError } from '../errors/definition.error.js';
import { declarationOf, guardedMethods } from '../metadata/declaration.js';
import { type AnyClass, taskName } from '../metadata/method-name.js';
import { compilePlan } from '../plan/compiler.js';
import type { Named } from '../plan/context.js';
import { isBuiltInJitter, type Jitter } from '../policies/jitters.js';
import type { PolicyDefaults } from '../policies/options.js';
import { isBuiltInLimiter, type Limiter } from '../policies/limiters/limiter.js';
import { describePlan, type MethodDescription } from '../plan/description.js';

const NO_APPLICATION =
  'describePolicies: limiters and key resolvers are called by an application only';

/** Limiters by name are an application's; without one, any name is taken as given. */
const ANY_LIMITER: Named<Limiter> = {
  get: (name) =>
    isBuiltInLimiter(name)
      ? undefined
      : () => {
          throw new DefinitionError(NO_APPLICATION);
        },
  keys: () => [],
};

const ANY_JITTER: Named<Jitter> = {
  get: (name) => (isBuiltInJitter(name) ? undefined : ({ delay }) => delay),
  keys: () => [],
};

/** So is the scope that a key of headers demands, where the method has none. */
const ANY_SCOPE: PolicyDefaults = {
  idempotency: {
    scope: function scopeOfTheModule() {
      throw new DefinitionError(NO_APPLICATION);
    },
  },
};

/**
 * What guards a method, after inheritance, in the order of the envelope, without the module's
 * `defaults` and `limiters`, which belong to an application.
 *
 * @returns frozen; which policies share a trip to the store is in `batches`
 * @throws DefinitionError when the method is not guarded, or its decorators cannot work
 */
export function describePolicies(target: AnyClass, method: string | symbol): MethodDescription {
  if (!guardedMethods(target).has(method)) {
    throw new DefinitionError(
      `describePolicies: expected a guarded method, got ${taskName(target, method)}`,
    );
  }
  const declaration = declarationOf(target, method, () => undefined);
  const context = {
    defaults: ANY_SCOPE,
    limiters: ANY_LIMITER,
    jitters: ANY_JITTER,
    lookup: NO_RESOLVERS,
    checkTarget: () => undefined,
  };
  return describePlan(compilePlan(declaration, context));
}

const NO_RESOLVERS = {
  expect: () => undefined,
  get: () => {
    throw new DefinitionError(NO_APPLICATION);
  },
};
