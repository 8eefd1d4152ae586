import type { Plan } from '../envelope/plan.js';
import { POLICY_NAMES, type PolicyName } from '../errors/refusals.js';
import { StoreKey } from '../keys/store-key.js';
import { assertAnswers, assertNoStream } from './answers.js';
import {
  type CompiledRetry,
  type CompiledRing,
  type CompiledRowLock,
  type PlanContext,
  type RingParts,
  type RingSource,
  siteOf,
} from './context.js';
import type { MethodDeclaration } from './declaration.js';
import { compileGates } from './gates.js';
import { isStream, mergedOf } from './inheritance.js';
import { compileRetry } from './retry.js';
import { circuitBreakerParts } from './rings/circuit-breaker.js';
import { idempotencyParts } from './rings/idempotency.js';
import { lockParts } from './rings/lock.js';
import { rateLimitParts } from './rings/rate-limit.js';
import { compileRowLock } from './row-lock.js';
import { inputsOf, outputOf } from './schemas.js';
import { type Warning, warningsAbout } from './warnings.js';

export interface CompiledPlan extends Plan {
  readonly rings: readonly CompiledRing[];
  readonly retry?: CompiledRetry | undefined;
  readonly rowLock?: CompiledRowLock | undefined;
  readonly warnings: readonly Warning[];
}

/** The rings to which it matters what a client was answered: one keeps it, one learns from it. */
const READS_ANSWERS: ReadonlySet<PolicyName> = new Set(['idempotency', 'circuitBreaker']);

/** What each policy makes of what was written. */
const PARTS: Readonly<Record<PolicyName, (source: RingSource) => RingParts>> = {
  rateLimit: rateLimitParts,
  circuitBreaker: circuitBreakerParts,
  lock: lockParts,
  idempotency: idempotencyParts,
};

/**
 * Decides what happens around a method, once.
 *
 * @throws DefinitionError for everything that could not work when the method is called
 */
export function compilePlan(declaration: MethodDeclaration, context: PlanContext): CompiledPlan {
  const rings = POLICY_NAMES.flatMap((name) => compileRing(name, declaration, context) ?? []);
  const retry = compileRetry(declaration, context);
  const rowLock = compileRowLock(declaration, context);
  const output = outputOf(declaration);
  const stream = isStream(declaration);
  assertAnswers(declaration, rings, rowLock, stream);
  if (stream) assertNoStream(declaration, { retry, rowLock, outputSchema: output });
  return Object.freeze({
    task: declaration.task,
    method: declaration.method,
    rank: declaration.rank,
    inputs: inputsOf(declaration),
    rings: Object.freeze(rings),
    retry,
    rowLock,
    output,
    stream,
    readsAnswers: rings.some((ring) => READS_ANSWERS.has(ring.policy.policy)),
    warnings: warningsAbout(declaration, rings, retry),
  });
}

function compileRing(
  name: PolicyName,
  declaration: MethodDeclaration,
  context: PlanContext,
): CompiledRing | undefined {
  const merged = mergedOf(declaration, name);
  if (!merged) return undefined;
  const site = siteOf(declaration, name);
  const parts = PARTS[name]({ merged, declaration, context, site });
  const { policy, options, key, fingerprint } = parts;
  const gates = compileGates(options, declaration, site);
  return {
    policy,
    gates,
    key,
    keyText: parts.keyText ?? key?.text ?? 'perTask',
    fingerprint,
    keyBase: StoreKey.compose(options.namespace, options.name ?? declaration.task),
    onBlank: options.onBlank,
    async: [key, fingerprint, ...gates].some((part) => part?.async === true),
    options: Object.freeze(options),
  };
}
