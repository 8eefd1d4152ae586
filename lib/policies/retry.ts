import { settledNow } from '../awaitable.js';
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

/** How late a server may say to come back, where no `maxDelay` says how late is too late. */
const LONGEST_BELIEVED_MS = 60_000;

/** Decides whether and when a body is repeated. It never sleeps by itself. */
export class RetryPolicy {
  constructor(private readonly settings: RetrySettings) {}

  /** @param attempt 1 before the first repetition */
  wants(error: unknown, attempt: number): boolean {
    return attempt <= this.settings.limit && tryTo(() => this.settings.matches(error)) === true;
  }

  /**
   * How long to sleep before a repetition. A server that says when to come back is believed; when
   * that is later than `maxDelay`, or than a minute where there is none, the body is not repeated: a
   * lease and a claim are held meanwhile.
   *
   * @param previousMs the sleep before the last repetition, if there was one
   * @returns whole milliseconds; `undefined` when no repetition makes sense
   * @throws RangeError when a custom jitter answers no number of seconds
   */
  delayMs(error: unknown, attempt: number, previousMs: number | undefined): number | undefined {
    const { delayMs, maxDelayMs, jitter } = this.settings;
    const wanted = retryAfterMs(error);
    if (wanted !== undefined) {
      const longest = maxDelayMs === Infinity ? LONGEST_BELIEVED_MS : maxDelayMs;
      return wanted <= longest ? wanted : undefined;
    }
    if (!jitter) return Math.min(delayMs, maxDelayMs);
    const seconds = settledNow(
      jitter({
        attempt,
        delay: toSeconds(delayMs),
        previous: toSeconds(previousMs ?? delayMs),
        maxDelay: toSeconds(maxDelayMs),
        random: Math.random(),
        error,
      }),
    );
    const ms = typeof seconds === 'number' ? Math.min(toWholeMs(seconds), maxDelayMs) : Number.NaN;
    if (!(ms >= 0 && ms < Infinity)) {
      throw new RangeError(`A jitter answered ${String(seconds)}; expected seconds, at least 0`, {
        cause: error,
      });
    }
    return ms;
  }
}

/** Three times 0.2 s are 600 ms, although 3 * 0.2 is 0.6000000000000001 in floating point. */
function toWholeMs(seconds: number): number {
  return Math.round(seconds * 1_000);
}

/**
 * What a server said about coming back: `retryAfter` in seconds, or the header `Retry-After` of a
 * response that the error carries (RFC 9110 section 10.2.3), as axios, undici and fetch have it.
 *
 * @returns milliseconds; `undefined` when the error says nothing that can be read
 */
export function retryAfterMs(error: unknown, at = Date.now()): number | undefined {
  const said = tryTo(() => {
    const { retryAfter, response, headers } = error as ErrorWithResponse;
    if (typeof retryAfter === 'number') return retryAfter;
    return headerOf(response?.headers) ?? headerOf(headers);
  });
  let ms = typeof said === 'number' ? toWholeMs(said) : Number.NaN;
  if (typeof said === 'string') ms = readRetryAfter(said.trim(), at);
  return ms >= 0 && ms < Infinity ? ms : undefined;
}

/** @returns milliseconds; NaN for what is neither seconds nor a date */
function readRetryAfter(said: string, now: number): number {
  if (/^\d+(\.\d+)?$/.test(said)) return toWholeMs(Number(said));
  // `Date.parse` makes a date of almost any text with a number in it.
  if (!/^(mon|tue|wed|thu|fri|sat|sun)/i.test(said)) return Number.NaN;
  const at = Date.parse(/gmt$/i.test(said) ? said : `${said} GMT`);
  return Math.max(0, at - now);
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
