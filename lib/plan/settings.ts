import { looksLikeMilliseconds, toMilliseconds } from '../clock/duration.js';
import { DefinitionError, show } from '../errors/definition.error.js';
import { BUILT_IN_LIMITERS, isBuiltInLimiter, type Limiter } from '../policies/limiters/limiter.js';
import { CircuitBreakerPolicy } from '../policies/circuit-breaker.js';
import { type ErrorSelection, matcherOf } from '../policies/error-matcher.js';
import { IdempotencyPolicy } from '../policies/idempotency.js';
import {
  BUILT_IN_JITTERS,
  builtInJitter,
  isBuiltInJitter,
  type Jitter,
  largestFactor,
} from '../policies/jitters.js';
import { LockPolicy } from '../policies/lock.js';
import type {
  CircuitBreakerOptions,
  IdempotencyOptions,
  LockOptions,
  PolicyDefaults,
  RateLimitOptions,
  RetryOptions,
} from '../policies/options.js';
import type { Policy } from '../policies/policy.js';
import { RetryPolicy } from '../policies/retry.js';
import {
  CustomRateLimitPolicy,
  RateLimitPolicy,
  type RateLimitSettings,
} from '../policies/rate-limit.js';

/** What an option is where nobody says otherwise. */
export const LOCK_DEFAULTS = {
  ttl: 300,
  wait: 0,
  namespace: 'cmdx:lock',
  onBusy: 'fail',
  onBlank: 'bypass',
  onStoreError: 'fail',
} as const satisfies LockOptions;

export const RATE_LIMIT_DEFAULTS = {
  limiter: 'fixed_window',
  cost: 1,
  namespace: 'cmdx:rl',
  onLimit: 'fail',
  onBlank: 'bypass',
  onStoreError: 'fail',
} as const satisfies RateLimitOptions;

export const IDEMPOTENCY_DEFAULTS = {
  ttl: '24h',
  lease: 60,
  wait: 30,
  namespace: 'cmdx:idem',
  onDuplicate: 'replay',
  onInProgress: 'fail',
  onAbandoned: 'fail',
  maxBytes: 64 * 1024,
  onBlank: 'bypass',
  onStoreError: 'fail',
} as const satisfies IdempotencyOptions;

export const CIRCUIT_BREAKER_DEFAULTS = {
  failureRate: 0.5,
  minimumCalls: 10,
  window: 60,
  openFor: 30,
  maxOpenFor: 600,
  permits: 1,
  probeTimeout: 60,
  namespace: 'cmdx:cb',
  onOpen: 'fail',
  onBlank: 'bypass',
  onStoreError: 'fail',
} as const satisfies CircuitBreakerOptions;

export const RETRY_DEFAULTS = { limit: 3, delay: 0.5 } as const satisfies RetryOptions;

export type EffectiveCircuitBreakerOptions = CircuitBreakerOptions &
  Required<Pick<CircuitBreakerOptions, keyof typeof CIRCUIT_BREAKER_DEFAULTS>>;
export type EffectiveRetryOptions = RetryOptions &
  Required<Pick<RetryOptions, keyof typeof RETRY_DEFAULTS>>;
export type EffectiveLockOptions = LockOptions &
  Required<Pick<LockOptions, keyof typeof LOCK_DEFAULTS>>;
export type EffectiveRateLimitOptions = RateLimitOptions &
  Required<Pick<RateLimitOptions, keyof typeof RATE_LIMIT_DEFAULTS>>;

export type EffectiveIdempotencyOptions = IdempotencyOptions &
  Required<Pick<IdempotencyOptions, keyof typeof IDEMPOTENCY_DEFAULTS>>;

/** Written options over the module's defaults over ours. */
export function effectiveLockOptions(
  written: LockOptions,
  defaults: PolicyDefaults,
): EffectiveLockOptions {
  return { ...LOCK_DEFAULTS, ...defined(defaults.lock), ...written };
}

export function effectiveRateLimitOptions(
  written: RateLimitOptions,
  defaults: PolicyDefaults,
): EffectiveRateLimitOptions {
  return { ...RATE_LIMIT_DEFAULTS, ...defined(defaults.rateLimit), ...written };
}

export function effectiveIdempotencyOptions(
  written: IdempotencyOptions,
  defaults: PolicyDefaults,
): EffectiveIdempotencyOptions {
  return { ...IDEMPOTENCY_DEFAULTS, ...defined(defaults.idempotency), ...written };
}

export function effectiveCircuitBreakerOptions(
  written: CircuitBreakerOptions,
  defaults: PolicyDefaults,
): EffectiveCircuitBreakerOptions {
  return { ...CIRCUIT_BREAKER_DEFAULTS, ...defined(defaults.circuitBreaker), ...written };
}

export function effectiveRetryOptions(
  written: RetryOptions,
  defaults: PolicyDefaults,
): EffectiveRetryOptions {
  return { ...RETRY_DEFAULTS, ...defined(defaults.retry), ...written };
}

export function circuitBreakerPolicy(
  options: EffectiveCircuitBreakerOptions,
  site: string,
): CircuitBreakerPolicy {
  const ms = (name: 'window' | 'openFor' | 'maxOpenFor' | 'probeTimeout'): number =>
    toMilliseconds(options[name], `${site} option "${name}"`);
  const { failureRate, minimumCalls, permits, onOpen, onStoreError, ignore, failOn } = options;
  return new CircuitBreakerPolicy({
    failureRate,
    minimumCalls,
    permits,
    windowMs: ms('window'),
    openMs: ms('openFor'),
    maxOpenMs: ms('maxOpenFor'),
    probeMs: ms('probeTimeout'),
    onOpen,
    onStoreError,
    ignore: ignore && matcherOf([ignore]),
    failOn: failOn && matcherOf([failOn]),
  });
}

/** The jitters that a name may mean. */
export interface NamedJitters {
  get(name: string): Jitter | undefined;
  keys(): Iterable<string>;
}

/**
 * @param errors which errors let the body be repeated
 * @param named the jitters that a name may mean, the class's before the module's
 * @throws DefinitionError for an unknown jitter
 */
export function retryPolicy(
  errors: readonly ErrorSelection[],
  options: EffectiveRetryOptions,
  named: readonly NamedJitters[],
  site: string,
): RetryPolicy {
  return new RetryPolicy({
    limit: options.limit,
    delayMs: toMilliseconds(options.delay, `${site} option "delay"`, true),
    maxDelayMs: maxDelayMs(options, site),
    jitter: jitterOf(options.jitter, named, site),
    matches: matcherOf(errors),
  });
}

function maxDelayMs({ maxDelay }: RetryOptions, site: string): number {
  return maxDelay === undefined ? Infinity : toMilliseconds(maxDelay, `${site} option "maxDelay"`);
}

function jitterOf(
  jitter: RetryOptions['jitter'],
  named: readonly NamedJitters[],
  site: string,
): Jitter | undefined {
  if (jitter === undefined || typeof jitter === 'function') return jitter;
  const custom = named.map((each) => each.get(jitter)).find((each) => each !== undefined);
  if (custom) return custom;
  if (isBuiltInJitter(jitter)) return builtInJitter(jitter);
  const known = [...BUILT_IN_JITTERS, ...named.flatMap((each) => [...each.keys()])].join(', ');
  throw new DefinitionError(
    `${site} option "jitter": expected a registered jitter (${known}), got ${show(jitter)}`,
  );
}

/**
 * Whether all sleeps of a retry together can take longer than that. Nothing caps a jitter of the
 * application's own but `maxDelay`.
 */
export function sleepsOutlast(ms: number, options: EffectiveRetryOptions, site: string): boolean {
  const delayMs = toMilliseconds(options.delay, `${site} option "delay"`, true);
  const most = maxDelayMs(options, site);
  const { jitter, limit } = options;
  const builtIn = typeof jitter === 'string' && isBuiltInJitter(jitter) ? jitter : undefined;
  if (limit === 0) return false;
  if (jitter !== undefined && !builtIn) return most * limit > ms;
  if (delayMs === 0) return false;
  let sum = 0;
  for (let attempt = 1; attempt <= limit; attempt++) {
    const factor = builtIn ? largestFactor(builtIn, attempt) : 1;
    sum += Math.min(most, delayMs * factor);
    if (sum > ms) return true;
  }
  return false;
}

export function lockPolicy(options: EffectiveLockOptions, site: string): LockPolicy {
  const { wait } = options;
  return new LockPolicy({
    ttlMs: toMilliseconds(options.ttl, `${site} option "ttl"`),
    waitMs:
      wait === null || wait === false ? 0 : toMilliseconds(wait, `${site} option "wait"`, true),
    onBusy: options.onBusy,
    onStoreError: options.onStoreError,
  });
}

/** @param warn told what keeps answers of the method from being given again */
export function idempotencyPolicy(
  options: EffectiveIdempotencyOptions,
  site: string,
  warn: (message: string) => void,
): IdempotencyPolicy {
  const ms = (name: 'ttl' | 'lease' | 'wait'): number =>
    toMilliseconds(options[name], `${site} option "${name}"`);
  return new IdempotencyPolicy({
    ttlMs: ms('ttl'),
    leaseMs: ms('lease'),
    waitMs: ms('wait'),
    onDuplicate: options.onDuplicate,
    onInProgress: options.onInProgress,
    onAbandoned: options.onAbandoned,
    onStoreError: options.onStoreError,
    codec: options.codec,
    returns: options.returns,
    maxBytes: options.maxBytes,
    warn: (message) => warn(`${site}: ${message}`),
  });
}

/** The limiters that a name may mean. */
export interface NamedLimiters {
  get(name: string): Limiter | undefined;
  keys(): Iterable<string>;
}

/**
 * @param named the limiters that a name may mean, the class's before the module's
 * @throws DefinitionError when `max` or `per` is missing, the limiter unknown, or a start can never fit
 */
export function rateLimitPolicy(
  options: EffectiveRateLimitOptions,
  named: readonly NamedLimiters[],
  site: string,
): Policy {
  const settings = rateLimitSettings(options, site);
  const { limiter } = options;
  const frozen = Object.freeze({ ...options });
  if (typeof limiter === 'function') {
    return new CustomRateLimitPolicy(limiter.name || 'custom', limiter, settings, frozen);
  }
  const custom = named.map((each) => each.get(limiter)).find((each) => each !== undefined);
  if (custom) return new CustomRateLimitPolicy(limiter, custom, settings, frozen);
  if (!isBuiltInLimiter(limiter)) {
    const known = [...BUILT_IN_LIMITERS, ...named.flatMap((each) => [...each.keys()])].join(', ');
    throw new DefinitionError(
      `${site} option "limiter": expected a registered limiter (${known}), got ${show(limiter)}`,
    );
  }
  if (limiter === 'leaky_bucket') assertFits(settings, site);
  return new RateLimitPolicy(limiter, settings);
}

function rateLimitSettings(options: EffectiveRateLimitOptions, site: string): RateLimitSettings {
  for (const name of ['max', 'per'] as const) {
    if (options[name] === undefined) {
      throw new DefinitionError(`${site}: expected the option "${name}", got none`);
    }
  }
  return {
    max: options.max as number,
    perMs: toMilliseconds(options.per, `${site} option "per"`),
    cost: options.cost,
    onLimit: options.onLimit,
    onStoreError: options.onStoreError,
  };
}

function assertFits({ max, perMs, cost }: RateLimitSettings, site: string): void {
  if (max > 0 && cost > max) {
    throw new DefinitionError(`${site} option "cost": expected at most max (${max}), got ${cost}`);
  }
  if (max * perMs * 1_000 > Number.MAX_SAFE_INTEGER) {
    throw new DefinitionError(
      `${site}: expected max x per below ${Math.floor(Number.MAX_SAFE_INTEGER / 1e6)} seconds, got ${max} x ${perMs / 1_000}`,
    );
  }
}

/** Options that look like milliseconds written where seconds are read. */
export function suspiciousDurations(options: object, site: string): readonly string[] {
  return (
    [
      'ttl',
      'per',
      'wait',
      'lease',
      'window',
      'openFor',
      'maxOpenFor',
      'probeTimeout',
      'delay',
      'maxDelay',
      'storeTimeout',
      'shutdownTimeout',
    ] as const
  ).flatMap((name) => {
    const value = (options as Record<string, unknown>)[name];
    return looksLikeMilliseconds(value)
      ? [`${site} option "${name}": ${value} seconds; did you mean '${value / 1_000}s'?`]
      : [];
  });
}

function defined<T extends object>(options: T | undefined): Partial<T> {
  return Object.fromEntries(
    Object.entries(options ?? {}).filter(([, value]) => value !== undefined),
  ) as Partial<T>;
}
