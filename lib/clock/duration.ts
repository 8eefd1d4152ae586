import { DefinitionError, show } from '../errors/definition.error.js';

/** Units a duration string may end in. */
export type DurationUnit = 'ms' | 's' | 'm' | 'h' | 'd';

/**
 * A length of time: a number of **seconds** (fractions allowed, millisecond precision) or a string
 * with its unit, such as `'250ms'`, `'30s'`, `'10m'`, `'24h'` or `'7d'`.
 */
export type Duration = number | `${number}${DurationUnit}`;

const MS_PER_UNIT: Readonly<Record<DurationUnit, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};
const PATTERN = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/;

/** The longest duration accepted: 1,000 years, far inside the integers that JavaScript and Lua keep exact. */
const LONGEST_MS = 1_000 * 365 * MS_PER_UNIT.d;

/**
 * Reads a {@link Duration}.
 *
 * @param value what the user wrote
 * @param where names the option in the error, for example `Accounts.reconcile: @LockWith option "ttl"`
 * @param allowZero whether a length of nothing is accepted
 * @returns whole milliseconds, rounded up, so that nothing ends earlier than written
 * @throws DefinitionError for NaN, Infinity, a negative or unreadable value, and for zero unless allowed
 */
export function toMilliseconds(value: unknown, where: string, allowZero = false): number {
  const ms = readMilliseconds(value);
  if (ms === undefined || !(allowZero ? ms >= 0 : ms > 0) || ms > LONGEST_MS) {
    const size = allowZero ? 'zero or more' : 'more than zero';
    throw new DefinitionError(
      `${where}: expected ${size} seconds, or a string such as '250ms', '30s', '10m', '24h', '7d'; got ${show(value)}`,
    );
  }
  return Math.ceil(ms);
}

/** Milliseconds as the seconds that every outward field uses. */
export function toSeconds(ms: number): number {
  return ms / 1_000;
}

/** Whether a plain number looks like milliseconds written where seconds are read. */
export function looksLikeMilliseconds(value: unknown): value is number {
  return typeof value === 'number' && value >= 1_000 && value % 1_000 === 0;
}

function readMilliseconds(value: unknown): number | undefined {
  if (typeof value === 'number') return roundToMicroseconds(value * 1_000);
  if (typeof value !== 'string') return undefined;
  const match = PATTERN.exec(value);
  if (!match) return undefined;
  return roundToMicroseconds(Number(match[1]) * MS_PER_UNIT[match[2] as DurationUnit]);
}

/** 0.29 s is 290 ms, although 0.29 * 1000 is 290.00000000000006 in floating point. */
function roundToMicroseconds(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
