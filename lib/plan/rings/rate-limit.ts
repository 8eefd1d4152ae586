import { toMilliseconds } from '../../clock/duration.js';
import { DefinitionError, show } from '../../errors/definition.error.js';
import { compileKey } from '../../keys/compiled-key.js';
import type { KeySpec } from '../../keys/key-resolver.js';
import {
  BUILT_IN_LIMITERS,
  isBuiltInLimiter,
  type Limiter,
} from '../../policies/limiters/limiter.js';
import type { RateLimitOptions } from '../../policies/options.js';
import type { Policy } from '../../policies/policy.js';
import {
  CustomRateLimitPolicy,
  RateLimitPolicy,
  type RateLimitSettings,
} from '../../policies/rate-limit.js';
import {
  defined,
  meaningOf,
  type Named,
  namesIn,
  type RingParts,
  type RingSource,
} from '../context.js';

/** What an option is where nobody says otherwise. */
const RATE_LIMIT_DEFAULTS = {
  limiter: 'fixed_window',
  cost: 1,
  namespace: 'cmdx:rl',
  onLimit: 'fail',
  onBlank: 'bypass',
  onStoreError: 'fail',
} as const satisfies RateLimitOptions;

export function rateLimitParts({ merged, declaration, context, site }: RingSource): RingParts {
  const options: Effective = {
    ...RATE_LIMIT_DEFAULTS,
    ...defined(context.defaults.rateLimit),
    ...merged.options,
  };
  const named = [declaration.limiters, context.limiters];
  return {
    policy: rateLimitPolicy(options, named, site),
    options: { ...options },
    key: compileKey(merged.subject as KeySpec | undefined, declaration.shape, context.lookup),
  };
}

type Effective = RateLimitOptions &
  Required<Pick<RateLimitOptions, keyof typeof RATE_LIMIT_DEFAULTS>>;

/**
 * @param named the limiters that a name may mean, the class's before the module's
 * @throws DefinitionError when `max` or `per` is missing, the limiter unknown, or a start can never fit
 */
function rateLimitPolicy(
  options: Effective,
  named: readonly Named<Limiter>[],
  site: string,
): Policy {
  const settings = rateLimitSettings(options, site);
  const { limiter } = options;
  const frozen = Object.freeze({ ...options });
  if (typeof limiter === 'function') {
    return new CustomRateLimitPolicy(limiter.name || 'custom', limiter, settings, frozen);
  }
  const custom = meaningOf(limiter, named);
  if (custom) return new CustomRateLimitPolicy(limiter, custom, settings, frozen);
  if (!isBuiltInLimiter(limiter)) {
    throw new DefinitionError(
      `${site} option "limiter": expected a registered limiter (${namesIn(BUILT_IN_LIMITERS, named)}), got ${show(limiter)}`,
    );
  }
  if (limiter === 'leaky_bucket') assertFits(settings, site);
  return new RateLimitPolicy(limiter, settings);
}

function rateLimitSettings(options: Effective, site: string): RateLimitSettings {
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
