import type { Plan, PlannedRing } from '../envelope/plan.js';
import { DefinitionError } from '../errors/definition.error.js';
import type { PolicyName } from '../errors/refusals.js';
import { compileKey, type ResolverLookup } from '../keys/compiled-key.js';
import { StoreKey } from '../keys/store-key.js';
import { DECORATOR_NAMES } from '../policies/option-rules.js';
import type { CommonOptions, PolicyDefaults } from '../policies/options.js';
import type { Policy } from '../policies/policy.js';
import type { MethodDeclaration } from './declaration.js';
import { compileGates } from './gates.js';
import { isStream, mergeRecords, type Merged } from './inheritance.js';
import {
  effectiveLockOptions,
  effectiveRateLimitOptions,
  lockPolicy,
  type NamedLimiters,
  rateLimitPolicy,
  suspiciousDurations,
} from './settings.js';

/** What an application adds to what is written on its classes. */
export interface PlanContext {
  readonly defaults: PolicyDefaults;
  readonly limiters: NamedLimiters;
  readonly lookup: ResolverLookup;
}

/** A ring together with what it was made of. */
export interface CompiledRing extends PlannedRing {
  readonly options: Readonly<CommonOptions & Record<string, unknown>>;
}

export interface CompiledPlan extends Plan {
  readonly rings: readonly CompiledRing[];
  /** What the author should be told at boot, once for each decorator as it was written. */
  readonly warnings: readonly Warning[];
}

export interface Warning {
  /** The decorator: one on a class is part of the plan of each of its methods. */
  readonly about: object;
  readonly messages: readonly string[];
}

/** The fixed order of the rings, whatever the order of the decorators. */
const RING_ORDER: readonly PolicyName[] = ['rateLimit', 'lock'];

/**
 * Decides what happens around a method, once.
 *
 * @throws DefinitionError for everything that could not work when the method is called
 */
export function compilePlan(declaration: MethodDeclaration, context: PlanContext): CompiledPlan {
  const rings: CompiledRing[] = [];
  const warnings: Warning[] = [];
  for (const policy of RING_ORDER) {
    const merged = mergeRecords(declaration.records[policy] ?? []);
    if (!merged) continue;
    const site = `${declaration.task}: ${DECORATOR_NAMES[policy]}`;
    rings.push(compileRing(policy, merged, declaration, context, site));
    for (const about of declaration.records[policy] ?? []) {
      if (about.form !== 'set') continue;
      const messages = suspiciousDurations(about.options, site);
      if (messages.length > 0) warnings.push({ about, messages });
    }
  }
  assertAnswers(declaration, rings);
  return Object.freeze({
    task: declaration.task,
    method: declaration.method,
    rank: declaration.rank,
    rings: Object.freeze(rings),
    stream: isStream(declaration),
    warnings,
  });
}

function compileRing(
  name: PolicyName,
  merged: Merged,
  declaration: MethodDeclaration,
  context: PlanContext,
  site: string,
): CompiledRing {
  const { policy, options } = makePolicy(name, merged, declaration, context, site);
  const gates = compileGates(options, declaration, site);
  const key = compileKey(merged.key, declaration.shape, context.lookup);
  return {
    policy,
    gates,
    key,
    keyBase: StoreKey.compose(options.namespace, options.name ?? declaration.task),
    onBlank: options.onBlank,
    async: key?.async === true || gates.some((gate) => gate.async),
    options: Object.freeze(options),
  };
}

function makePolicy(
  name: PolicyName,
  merged: Merged,
  declaration: MethodDeclaration,
  context: PlanContext,
  site: string,
) {
  if (name === 'lock') {
    const options = effectiveLockOptions(merged.options, context.defaults);
    return { policy: lockPolicy(options, site) as Policy, options };
  }
  const options = effectiveRateLimitOptions(merged.options, context.defaults);
  const named = [declaration.limiters, context.limiters];
  return { policy: rateLimitPolicy(options, named, site), options };
}

/** A skipped call is answered 202 with a body, which some handlers have no room for. */
function assertAnswers(declaration: MethodDeclaration, rings: readonly PlannedRing[]): void {
  if (!declaration.fixedAnswer) return;
  const skipping = rings.find((ring) => ring.policy.onRefusal === 'skip');
  if (!skipping) return;
  throw new DefinitionError(
    `${declaration.task}: ${DECORATOR_NAMES[skipping.policy.policy]}: expected a handler that Nest answers with its value, because a refusal skips the body; got ${declaration.fixedAnswer}`,
  );
}
