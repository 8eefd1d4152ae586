import { toMilliseconds } from '../clock/duration.js';
import { DECLARABLES } from '../policies/option-rules.js';
import { type CompiledRetry, type CompiledRing, siteOf } from './context.js';
import type { MethodDeclaration } from './declaration.js';
import { suspiciousDurations } from './durations.js';
import { sleepsOutlast } from './retry.js';

/** What the author of a class should be told at boot. */
export interface Warning {
  /** The decorator: one on a class is part of the plan of each of its methods. */
  readonly about: object;
  readonly messages: readonly string[];
}

/** Told once for each decorator as it was written. */
export function warningsAbout(
  declaration: MethodDeclaration,
  rings: readonly CompiledRing[],
  retry: CompiledRetry | undefined,
): readonly Warning[] {
  return [...durationWarnings(declaration), ...sleepWarnings(declaration, rings, retry)];
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

/** Lease and permit are held over all attempts. */
function sleepWarnings(
  declaration: MethodDeclaration,
  rings: readonly CompiledRing[],
  retry: CompiledRetry | undefined,
): Warning[] {
  if (!retry) return [];
  const site = siteOf(declaration, 'retry');
  const messages = SLEPT_THROUGH.flatMap(({ policy, option, what }) => {
    const ring = rings.find((each) => each.policy.policy === policy);
    if (!ring) return [];
    const ms = toMilliseconds(ring.options[option], site);
    if (!sleepsOutlast(ms, retry.options, site)) return [];
    return [
      `${site}: its sleeps together can take longer than ${what.replace('%', `${ms / 1_000} s`)}; set a smaller "limit" or "maxDelay", or a longer "${option}"`,
    ];
  });
  return messages.length > 0 ? [{ about: retry, messages }] : [];
}

/** What must not run out while a body sleeps. */
const SLEPT_THROUGH = [
  {
    policy: 'lock',
    option: 'ttl',
    what: "the lock's ttl of %, after which another run may enter",
  },
  {
    policy: 'circuitBreaker',
    option: 'probeTimeout',
    what: "the breaker's probeTimeout of %, after which a probe counts as lost and closes nothing",
  },
] as const;
