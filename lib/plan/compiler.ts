import { toMilliseconds } from '../clock/duration.js';
import type { Plan, PlannedRetry, PlannedRing } from '../envelope/plan.js';
import { DefinitionError } from '../errors/definition.error.js';
import { POLICY_NAMES, type PolicyName } from '../errors/refusals.js';
import { type CompiledKey, compileKey, type ResolverLookup } from '../keys/compiled-key.js';
import { compileFingerprint, type CompiledFingerprint } from '../keys/fingerprint.js';
import type { KeySpec } from '../keys/key-resolver.js';
import { scopedKey } from '../keys/scoped-key.js';
import { StoreKey } from '../keys/store-key.js';
import type { ErrorSelection } from '../policies/error-matcher.js';
import { DECLARABLES, type Declarable, DECORATOR_NAMES } from '../policies/option-rules.js';
import type { CommonOptions, IdempotencyOptions, PolicyDefaults } from '../policies/options.js';
import type { Policy } from '../policies/policy.js';
import type { Schema } from '../policies/schema.js';
import type { MethodDeclaration } from './declaration.js';
import { compileGates, compileRetryGates } from './gates.js';
import { isStream, mergeRecords, type Merged } from './inheritance.js';
import {
  circuitBreakerPolicy,
  effectiveCircuitBreakerOptions,
  effectiveIdempotencyOptions,
  effectiveLockOptions,
  effectiveRateLimitOptions,
  type EffectiveRetryOptions,
  effectiveRetryOptions,
  idempotencyPolicy,
  lockPolicy,
  type NamedJitters,
  type NamedLimiters,
  rateLimitPolicy,
  retryPolicy,
  sleepsOutlast,
  suspiciousDurations,
} from './settings.js';

/** What an application adds to what is written on its classes. */
export interface PlanContext {
  readonly defaults: PolicyDefaults;
  readonly limiters: NamedLimiters;
  readonly jitters: NamedJitters;
  readonly lookup: ResolverLookup;
}

/** A ring together with what it was made of. */
export interface CompiledRing extends PlannedRing {
  readonly options: Readonly<CommonOptions & Record<string, unknown>>;
}

/** A retry together with what it was made of. */
export interface CompiledRetry extends PlannedRetry {
  readonly options: Readonly<EffectiveRetryOptions>;
}

export interface CompiledPlan extends Plan {
  readonly rings: readonly CompiledRing[];
  readonly retry?: CompiledRetry | undefined;
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
  for (const policy of POLICY_NAMES) {
    const merged = mergedOf(declaration, policy);
    if (merged)
      rings.push(compileRing(policy, merged, declaration, context, siteOf(declaration, policy)));
  }
  const inputs = inputsOf(declaration);
  const retry = compileRetry(declaration, context);
  const output = schemaOf(declaration, 'outputSchema') as Schema | undefined;
  const stream = isStream(declaration);
  assertAnswers(declaration, rings, stream);
  if (stream) assertNoStream(declaration, { retry, outputSchema: output });
  return Object.freeze({
    task: declaration.task,
    method: declaration.method,
    rank: declaration.rank,
    inputs,
    rings: Object.freeze(rings),
    retry,
    output,
    stream,
    keepsAnswers: rings.some((ring) => ring.policy.policy === 'idempotency'),
    warnings: [...durationWarnings(declaration), ...sleepWarnings(declaration, rings, retry)],
  });
}

function mergedOf(declaration: MethodDeclaration, name: Declarable): Merged | undefined {
  return mergeRecords(declaration.records[name] ?? []);
}

/** One schema per argument. */
function inputsOf(declaration: MethodDeclaration): readonly (Schema | undefined)[] | undefined {
  const written = schemaOf(declaration, 'inputSchema');
  if (written === undefined) return undefined;
  // Not `flat()`, which closes the gap in a list such as `[, second]`.
  return Array.isArray(written) ? Array.from<Schema | undefined>(written) : [written as Schema];
}

/** @throws DefinitionError for a check by nothing */
function schemaOf(declaration: MethodDeclaration, name: 'inputSchema' | 'outputSchema'): unknown {
  const merged = mergedOf(declaration, name);
  if (!merged || merged.subject !== undefined) return merged?.subject;
  throw new DefinitionError(
    `${siteOf(declaration, name)}: expected a schema, own or inherited, got none`,
  );
}

function siteOf(declaration: MethodDeclaration, name: Declarable): string {
  return `${declaration.task}: ${DECORATOR_NAMES[name]}`;
}

function durationWarnings(declaration: MethodDeclaration): Warning[] {
  return DECLARABLES.flatMap((name) =>
    (declaration.records[name] ?? []).flatMap((about) => {
      if (about.form !== 'set') return [];
      const messages = suspiciousDurations(about.options, siteOf(declaration, name));
      return messages.length > 0 ? [{ about, messages }] : [];
    }),
  );
}

/** A lease is held over all attempts: one that runs out in a sleep lets another run in. */
function sleepWarnings(
  declaration: MethodDeclaration,
  rings: readonly CompiledRing[],
  retry: CompiledRetry | undefined,
): Warning[] {
  const lock = rings.find((ring) => ring.policy.policy === 'lock');
  if (!lock || !retry) return [];
  const site = siteOf(declaration, 'retry');
  const ttlMs = toMilliseconds(lock.options['ttl'], site);
  if (!sleepsOutlast(ttlMs, retry.options, site)) return [];
  const message = `${site}: its sleeps together can take longer than the lock's ttl of ${ttlMs / 1_000} s, after which another run may enter; set a smaller "limit" or "maxDelay", or a longer "ttl"`;
  return [{ about: retry, messages: [message] }];
}

/** @throws DefinitionError for a retry of nothing, or an unknown jitter */
function compileRetry(
  declaration: MethodDeclaration,
  context: PlanContext,
): CompiledRetry | undefined {
  const merged = mergedOf(declaration, 'retry');
  if (!merged) return undefined;
  const site = siteOf(declaration, 'retry');
  if (merged.subjects.length === 0) {
    throw new DefinitionError(
      `${site}: expected the errors that let the body be repeated, own or inherited, got none`,
    );
  }
  const options = effectiveRetryOptions(merged.options, context.defaults);
  const errors = merged.subjects as readonly ErrorSelection[];
  const named = [declaration.jitters, context.jitters];
  return {
    policy: retryPolicy(errors, options, named, site),
    gates: compileRetryGates(options, declaration, site),
    options: Object.freeze(options),
  };
}

function assertNoStream(
  declaration: MethodDeclaration,
  written: { readonly [D in Declarable]?: unknown },
): void {
  for (const [name, value] of Object.entries(written)) {
    if (value === undefined) continue;
    throw new DefinitionError(
      `${siteOf(declaration, name as Declarable)}: expected a method that returns a Promise, got one that returns an Observable`,
    );
  }
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
  if (name === 'circuitBreaker') return circuitParts(merged, declaration, context, site);
  const key = compileKey(merged.subject as KeySpec | undefined, declaration.shape, context.lookup);
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

/** A breaker's literal key is the name of what it protects, shared by all methods that call it. */
function circuitParts(
  merged: Merged,
  declaration: MethodDeclaration,
  context: PlanContext,
  site: string,
): RingParts {
  const { subject } = merged;
  const shared = typeof subject === 'string' ? { name: subject } : {};
  const options = {
    ...effectiveCircuitBreakerOptions(merged.options, context.defaults),
    ...shared,
  };
  if (options.name?.includes(':')) {
    throw new DefinitionError(
      `${site}: expected a shared name without a ":", got ${JSON.stringify(options.name)}`,
    );
  }
  const spec = typeof subject === 'string' ? undefined : (subject as KeySpec | undefined);
  return {
    policy: circuitBreakerPolicy(options, site),
    options: { ...options },
    key: compileKey(spec, declaration.shape, context.lookup),
  };
}

function idempotencyParts(
  merged: Merged,
  key: CompiledKey | undefined,
  declaration: MethodDeclaration,
  context: PlanContext,
  site: string,
): RingParts {
  if (merged.subject === undefined) {
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
