import type { Plan, PlannedRing } from '../envelope/plan.js';
import { DefinitionError } from '../errors/definition.error.js';
import { POLICY_NAMES, type PolicyName } from '../errors/refusals.js';
import { type CompiledKey, compileKey, type ResolverLookup } from '../keys/compiled-key.js';
import { compileFingerprint, type CompiledFingerprint } from '../keys/fingerprint.js';
import type { KeySpec } from '../keys/key-resolver.js';
import { scopedKey } from '../keys/scoped-key.js';
import { StoreKey } from '../keys/store-key.js';
import { DECORATOR_NAMES } from '../policies/option-rules.js';
import type { CommonOptions, IdempotencyOptions, PolicyDefaults } from '../policies/options.js';
import type { Policy } from '../policies/policy.js';
import type { MethodDeclaration } from './declaration.js';
import { compileGates } from './gates.js';
import { isStream, mergeRecords, type Merged } from './inheritance.js';
import {
  effectiveIdempotencyOptions,
  effectiveLockOptions,
  effectiveRateLimitOptions,
  idempotencyPolicy,
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

/**
 * Decides what happens around a method, once.
 *
 * @throws DefinitionError for everything that could not work when the method is called
 */
export function compilePlan(declaration: MethodDeclaration, context: PlanContext): CompiledPlan {
  const rings: CompiledRing[] = [];
  const warnings: Warning[] = [];
  for (const policy of POLICY_NAMES) {
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
  const stream = isStream(declaration);
  assertAnswers(declaration, rings, stream);
  return Object.freeze({
    task: declaration.task,
    method: declaration.method,
    rank: declaration.rank,
    rings: Object.freeze(rings),
    stream,
    keepsAnswers: rings.some((ring) => ring.policy.policy === 'idempotency'),
    warnings,
  });
}

interface RingParts {
  readonly policy: Policy;
  readonly options: CompiledRing['options'] &
    Pick<Required<CommonOptions>, 'namespace' | 'onBlank'>;
  readonly key: CompiledKey | undefined;
  readonly fingerprint?: CompiledFingerprint | undefined;
}

function compileRing(
  name: PolicyName,
  merged: Merged,
  declaration: MethodDeclaration,
  context: PlanContext,
  site: string,
): CompiledRing {
  const parts = makeParts(name, merged, declaration, context, site);
  const { policy, options, key, fingerprint } = parts;
  const gates = compileGates(options, declaration, site);
  return {
    policy,
    gates,
    key,
    fingerprint,
    keyBase: StoreKey.compose(options.namespace, options.name ?? declaration.task),
    onBlank: options.onBlank,
    async: [key, fingerprint, ...gates].some((part) => part?.async === true),
    options: Object.freeze(options),
  };
}

function makeParts(
  name: PolicyName,
  merged: Merged,
  declaration: MethodDeclaration,
  context: PlanContext,
  site: string,
): RingParts {
  const key = compileKey(merged.key, declaration.shape, context.lookup);
  switch (name) {
    case 'lock': {
      const options = effectiveLockOptions(merged.options, context.defaults);
      return { policy: lockPolicy(options, site), options: { ...options }, key };
    }
    case 'rateLimit': {
      const options = effectiveRateLimitOptions(merged.options, context.defaults);
      const named = [declaration.limiters, context.limiters];
      return { policy: rateLimitPolicy(options, named, site), options: { ...options }, key };
    }
    case 'idempotency':
      return idempotencyParts(merged, key, declaration, context, site);
  }
}

function idempotencyParts(
  merged: Merged,
  key: CompiledKey | undefined,
  declaration: MethodDeclaration,
  context: PlanContext,
  site: string,
): RingParts {
  if (merged.key === undefined) {
    throw new DefinitionError(
      `${site}: expected a key, own or inherited, got none; perTask lets the work of the whole task be done once per ttl`,
    );
  }
  const { scope: _default, ...options } = effectiveIdempotencyOptions(
    merged.options,
    context.defaults,
  );
  const scope = scopeOf(merged.options, key, context, site);
  const scopeKey =
    scope === undefined || scope === 'shared'
      ? scope
      : compileKey(scope as KeySpec, declaration.shape, context.lookup);
  const byHeader = key !== undefined && key.headers !== 'none';
  const fingerprint = options.fingerprint ?? (declaration.handler && byHeader && 'request');
  return {
    policy: idempotencyPolicy(options, site, declaration.shape.warnOnce),
    options: { ...options, fingerprint, ...(scope !== undefined && { scope }) },
    key: scopeKey === undefined ? key : scopedKey(key, scopeKey),
    fingerprint: fingerprint === false ? undefined : compileFingerprint(fingerprint),
  };
}

/**
 * Whose keys they are. The module's default steps in only where a key demands it: a scope that reads
 * the request is blank in a job at night.
 */
function scopeOf(
  written: IdempotencyOptions,
  key: CompiledKey | undefined,
  context: PlanContext,
  site: string,
): IdempotencyOptions['scope'] {
  if (written.scope !== undefined || key?.headers !== 'all') return written.scope;
  const scope = context.defaults.idempotency?.scope;
  if (scope !== undefined) return scope;
  throw new DefinitionError(
    `${site}: expected the option "scope", because clients choose the key ${key.text} and one must not get another's answer; for example scope: fromRequest((request) => request.user.id), or scope: 'shared' if all clients share their keys; got none`,
  );
}

/**
 * A skipped call is answered 202 with a body, and a duplicate with the first answer, which some
 * handlers have no room for; and a stream is not kept.
 */
function assertAnswers(
  declaration: MethodDeclaration,
  rings: readonly PlannedRing[],
  stream: boolean,
): void {
  const site = ({ policy }: PlannedRing): string =>
    `${declaration.task}: ${DECORATOR_NAMES[policy.policy]}`;
  const keeping = rings.find((ring) => ring.policy.policy === 'idempotency');
  if (keeping && (stream || declaration.streamsEvents)) {
    throw new DefinitionError(
      `${site(keeping)}: expected a method that returns a Promise, got one that returns an Observable, whose values cannot be kept`,
    );
  }
  const { fixedAnswer, answersByItself } = declaration;
  const skipping = rings.find((ring) => ring.policy.canSkip);
  if (skipping && fixedAnswer) {
    throw new DefinitionError(
      `${site(skipping)}: expected a handler that Nest answers with its value, because a refusal skips the body; got ${fixedAnswer}`,
    );
  }
  const replaying = rings.find((ring) => ring.policy.canReplay);
  if (replaying && answersByItself) {
    throw new DefinitionError(
      `${site(replaying)}: expected a handler that Nest answers with its value, because a duplicate is given the first answer; got ${fixedAnswer}`,
    );
  }
}
