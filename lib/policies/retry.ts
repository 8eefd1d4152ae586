import { toSeconds } from '../clock/duration.js';
import { attempt as tryTo } from '../errors/reading.js';
import type { ErrorMatcher } from './error-matcher.js';
import type { Jitter } from './jitters.js';

/** How a body is repeated, after inheritance, defaults and validation. */
export interface RetrySettings {
  /** Most repetitions. */
  readonly limit: number;
  readonly delayMs: number;
  /** `Infinity` without one. */
  readonly maxDelayMs: number;
  readonly jitter: Jitter | undefined;
  readonly matches: ErrorMatcher;
}

/** Decides whether and when a body is repeated. It never sleeps by itself. */
export class RetryPolicy {
  constructor(private readonly settings: RetrySettings) {}

  /** @param attempt 1 before the first repetition */
  wants(error: unknown, attempt: number): boolean {
    return attempt <= this.settings.limit && tryTo(() => this.settings.matches(error)) === true;
  }

  /**
   * How long to sleep before a repetition. A server that says when to come back is believed; when
   * that is later than `maxDelay`, there is no point in asking again.
   *
   * @param previousMs the sleep before the last repetition, if there was one
   * @returns milliseconds; `undefined` when no repetition makes sense
   * @throws RangeError when a custom jitter answers no number of seconds
   */
  delayMs(error: unknown, attempt: number, previousMs: number | undefined): number | undefined {
    const { delayMs, maxDelayMs, jitter } = this.settings;
    const wanted = retryAfterMs(error);
    if (wanted !== undefined) return wanted <= maxDelayMs ? wanted : undefined;
    if (!jitter) return Math.min(delayMs, maxDelayMs);
    const seconds = jitter({
      attempt,
      delay: toSeconds(delayMs),
      previous: toSeconds(previousMs ?? delayMs),
      maxDelay: toSeconds(maxDelayMs),
      random: Math.random(),
      error,
    });
    if (typeof seconds !== 'number' || !(seconds >= 0)) {
      throw new RangeError(`A jitter answered ${String(seconds)}; expected seconds, at least 0`);
    }
    return Math.min(seconds * 1_000, maxDelayMs);
  }
}

/**
 * What a server said about coming back: `retryAfter` in seconds, or the header `Retry-After` of a
 * response that the error carries (RFC 9110 section 10.2.3), as axios, undici and fetch have it.
 *
 * @returns milliseconds; `undefined` when the error says nothing that can be read
 */
export function retryAfterMs(error: unknown, now = Date.now()): number | undefined {
  const said = tryTo(() => {
    const { retryAfter, response, headers } = error as ErrorWithResponse;
    if (typeof retryAfter === 'number') return retryAfter;
    return headerOf(response?.headers) ?? headerOf(headers);
  });
  if (typeof said === 'number') return said >= 0 && said < Infinity ? said * 1_000 : undefined;
  if (typeof said !== 'string') return undefined;
  if (/^\d+$/.test(said.trim())) return Number(said) * 1_000;
  const at = Date.parse(said);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

type HeaderBag = { get?: (name: string) => unknown } & Readonly<Record<string, unknown>>;

interface ErrorWithResponse {
  readonly retryAfter?: unknown;
  readonly response?: { readonly headers?: HeaderBag };
  readonly headers?: HeaderBag;
}

function headerOf(headers: HeaderBag | undefined): unknown {
  if (!headers) return undefined;
  if (typeof headers.get === 'function') return headers.get('retry-after') ?? undefined;
  return headers['retry-after'] ?? headers['Retry-After'];
}
