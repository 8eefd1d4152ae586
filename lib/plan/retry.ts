import { toMilliseconds } from '../clock/duration.js';
import { DefinitionError, show } from '../errors/definition.error.js';
import { type ErrorSelection, matcherOf } from '../policies/error-matcher.js';
import {
  BUILT_IN_JITTERS,
  builtInJitter,
  isBuiltInJitter,
  type Jitter,
  largestFactor,
} from '../policies/jitters.js';
import type { RetryOptions } from '../policies/options.js';
import { RetryPolicy } from '../policies/retry.js';
import {
  type CompiledRetry,
  defined,
  meaningOf,
  type Named,
  namesIn,
  type PlanContext,
  siteOf,
} from './context.js';
import type { MethodDeclaration } from './declaration.js';
import { compileRetryGates } from './gates.js';
import { mergedOf } from './inheritance.js';

/** What an option is where nobody says otherwise. */
const RETRY_DEFAULTS = { limit: 3, delay: 0.5 } as const satisfies RetryOptions;

type Effective = CompiledRetry['options'];

/** @throws DefinitionError for a retry of nothing, or an unknown jitter */
export function compileRetry(
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
  const options: Effective = {
    ...RETRY_DEFAULTS,
    ...defined(context.defaults.retry),
    ...merged.options,
  };
  const errors = merged.subjects as readonly ErrorSelection[];
  const named = [declaration.jitters, context.jitters];
  return {
    policy: retryPolicy(errors, options, named, site),
    gates: compileRetryGates(options, declaration, site),
    options: Object.freeze(options),
  };
}

/**
 * @param errors which errors let the body be repeated
 * @param named the jitters that a name may mean, the class's before the module's
 * @throws DefinitionError for an unknown jitter
 */
function retryPolicy(
  errors: readonly ErrorSelection[],
  options: Effective,
  named: readonly Named<Jitter>[],
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
  named: readonly Named<Jitter>[],
  site: string,
): Jitter | undefined {
  if (jitter === undefined || typeof jitter === 'function') return jitter;
  const custom = meaningOf(jitter, named);
  if (custom) return custom;
  if (isBuiltInJitter(jitter)) return builtInJitter(jitter);
  throw new DefinitionError(
    `${site} option "jitter": expected a registered jitter (${namesIn(BUILT_IN_JITTERS, named)}), got ${show(jitter)}`,
  );
}

/**
 * Whether all sleeps of a retry together can take longer than that. Nothing caps a jitter of the
 * application's own but `maxDelay`.
 */
export function sleepsOutlast(ms: number, options: Effective, site: string): boolean {
  const delayMs = toMilliseconds(options.delay, `${site} option "delay"`, true);
  const most = maxDelayMs(options, site);
  const { jitter, limit } = options;
  const builtIn = typeof jitter === 'string' && isBuiltInJitter(jitter) ? jitter : undefined;
  if (limit === 0) return false;
  if (jitter !== undefined && !builtIn) return most * limit > ms;
  if (delayMs === 0) return false;
  let [sum, sleep] = [0, 0];
  for (let attempt = 1; attempt <= limit; attempt++) {
    const last = sleep;
    sleep = Math.min(most, delayMs * (builtIn ? largestFactor(builtIn, attempt) : 1));
    sum += sleep;
    if (sum > ms) return true;
    // What has not grown from the second to the third never will: the rest need not be counted one by one.
    if (attempt > 2 && sleep === last) return sum + (limit - attempt) * sleep > ms;
  }
  return false;
}
