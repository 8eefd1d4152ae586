/** What a jitter is told about the sleep before a repetition. Seconds. */
export interface Backoff {
  /** 1 before the first repetition. */
  readonly attempt: number;
  /** The option `delay`. */
  readonly delay: number;
  /** The sleep before the last repetition; `delay` before the first. */
  readonly previous: number;
  /** The option `maxDelay`, `Infinity` without one. */
  readonly maxDelay: number;
  /** A random number from 0 to below 1. */
  readonly random: number;
  /** What the attempt threw. */
  readonly error: unknown;
}

/** Answers how long to sleep before a repetition, in seconds, at least 0; `maxDelay` caps the answer. */
export type Jitter = (backoff: Backoff) => number;

/**
 * How the sleeps grow and spread. Full, half ("equal") and decorrelated jitter are those of the AWS
 * Architecture Blog, "Exponential Backoff And Jitter" (2015); `half_random`, `full_random` and
 * `bounded_random` spread a delay that does not grow.
 */
const BUILT_IN = {
  exponential: ({ delay, attempt }) => delay * 2 ** (attempt - 1),
  half_random: ({ delay, random }) => delay / 2 + (delay / 2) * random,
  full_random: ({ delay, random }) => delay * random,
  bounded_random: ({ delay, random }) => delay + delay * random,
  linear: ({ delay, attempt }) => delay * attempt,
  fibonacci: ({ delay, attempt }) => delay * fibonacci(attempt),
  decorrelated_jitter: ({ delay, previous, maxDelay, random }) =>
    Math.min(maxDelay, delay + (previous * 3 - delay) * random),
} as const satisfies Record<string, Jitter>;

export type BuiltInJitter = keyof typeof BUILT_IN;

export const BUILT_IN_JITTERS = Object.freeze(Object.keys(BUILT_IN)) as readonly BuiltInJitter[];

export function isBuiltInJitter(name: string): name is BuiltInJitter {
  return Object.hasOwn(BUILT_IN, name);
}

export function builtInJitter(name: BuiltInJitter): Jitter {
  return BUILT_IN[name];
}

/** The largest factor by which a built-in jitter multiplies the delay before a repetition. */
export function largestFactor(name: BuiltInJitter, attempt: number): number {
  switch (name) {
    case 'exponential':
      return 2 ** (attempt - 1);
    case 'linear':
      return attempt;
    case 'fibonacci':
      return fibonacci(attempt);
    case 'bounded_random':
      return 2;
    case 'decorrelated_jitter':
      return 3 ** attempt;
    default:
      return 1;
  }
}

/** 1, 1, 2, 3, 5, ... */
function fibonacci(n: number): number {
  let [last, next] = [1, 1];
  for (let i = 1; i < n; i++) [last, next] = [next, last + next];
  return last;
}
