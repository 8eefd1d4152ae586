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
