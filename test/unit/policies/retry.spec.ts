import { describe, expect, it } from '@jest/globals';
import { matcherOf } from '../../../lib/policies/error-matcher.js';
import { retryAfterMs, RetryPolicy, type RetrySettings } from '../../../lib/policies/retry.js';

function policy(settings: Partial<RetrySettings>): RetryPolicy {
  return new RetryPolicy({
    limit: 3,
    delayMs: 500,
    maxDelayMs: Infinity,
    jitter: undefined,
    matches: matcherOf([Error]),
    ...settings,
  });
}

const BOOM = new Error('boom');
/** 10 s before the date in the headers below. */
const NOW = Date.UTC(1994, 10, 6, 8, 49, 27);

describe('what does an error say about coming back?', () => {
  it.each([
    ['a number of seconds', { retryAfter: 1.5 }, 1_500],
    ['at once', { retryAfter: 0 }, 0],
    ['the header of a response, as Node and axios have it', headers({ 'retry-after': '2' }), 2_000],
    ['the same, as it was sent', headers({ 'Retry-After': '2' }), 2_000],
    ['of fetch', { response: new Response('', { headers: { 'Retry-After': '3' } }) }, 3_000],
    ['of the error itself, as undici has it', { headers: { 'retry-after': '4' } }, 4_000],
    ['zero', headers({ 'retry-after': '0' }), 0],
    ['with blanks around', headers({ 'retry-after': ' 5 ' }), 5_000],
    ['a number in a header', headers({ 'retry-after': 6 }), 6_000],
    ['fractions, which no standard knows', headers({ 'retry-after': '1.5' }), 1_500],
    ['a date', headers({ 'retry-after': 'Sun, 06 Nov 1994 08:49:37 GMT' }), 10_000],
    ['a date of RFC 850', headers({ 'retry-after': 'Sunday, 06-Nov-94 08:49:37 GMT' }), 10_000],
    ['a date of asctime', headers({ 'retry-after': 'Sun Nov  6 08:49:37 1994' }), 10_000],
    ['a date that is over', headers({ 'retry-after': 'Sun, 06 Nov 1994 08:49:07 GMT' }), 0],
    ['its own number first', { retryAfter: 1, ...headers({ 'retry-after': '2' }) }, 1_000],
  ])('%s', (_what, error, expected) => {
    expect(retryAfterMs(error, NOW)).toBe(expected);
  });

  it.each([
    ['nothing', BOOM],
    ['a negative number', { retryAfter: -1 }],
    ['NaN', { retryAfter: Number.NaN }],
    ['Infinity', { retryAfter: Infinity }],
    ['words', headers({ 'retry-after': 'soon' })],
    ['words with a number, of which JavaScript makes a date', headers({ 'retry-after': 'in 5 s' })],
    ['a negative text, likewise', headers({ 'retry-after': '-1' })],
    ['digits without an end', headers({ 'retry-after': '9'.repeat(400) })],
    ['an empty text', headers({ 'retry-after': '' })],
    ['a header that is not there', { response: new Response('') }],
    ['no headers', { response: {} }],
    ['a switch in a header', headers({ 'retry-after': true })],
    ['null in a header', headers({ 'retry-after': null })],
    ['null', null],
    ['undefined', undefined],
    ['a text', 'boom'],
    [
      'something that cannot be read',
      Object.defineProperty({}, 'retryAfter', {
        get: () => {
          throw BOOM;
        },
      }),
    ],
  ])('not with %s', (_what, error) => {
    expect(retryAfterMs(error, NOW)).toBeUndefined();
  });
});

describe('how long is the sleep?', () => {
  it('the delay, without a jitter; maxDelay caps it', () => {
    expect(policy({}).delayMs(BOOM, 3, 500)).toBe(500);
    expect(policy({ delayMs: 0 }).delayMs(BOOM, 1, undefined)).toBe(0);
    expect(policy({ maxDelayMs: 200 }).delayMs(BOOM, 1, undefined)).toBe(200);
  });

  it('what the jitter says, which is told everything in seconds; maxDelay caps it', () => {
    const told: unknown[] = [];
    const jitter: RetrySettings['jitter'] = (backoff) => {
      told.push(backoff);
      return 2;
    };
    expect(policy({ jitter }).delayMs(BOOM, 1, undefined)).toBe(2_000);
    expect(policy({ jitter, maxDelayMs: 1_500 }).delayMs(BOOM, 2, 750)).toBe(1_500);
    const random: unknown = expect.any(Number);
    expect(told).toEqual([
      { attempt: 1, delay: 0.5, previous: 0.5, maxDelay: Infinity, random, error: BOOM },
      { attempt: 2, delay: 0.5, previous: 0.75, maxDelay: 1.5, random, error: BOOM },
    ]);
    for (const { random: dice } of told as { random: number }[]) {
      expect(dice >= 0 && dice < 1).toBe(true);
    }
  });

  it('whole milliseconds, whatever the arithmetic of fractions makes of them', () => {
    const thrice = policy({ delayMs: 200, jitter: ({ delay }) => delay * 3 });
    expect(thrice.delayMs(BOOM, 1, undefined)).toBe(600);
    expect(policy({}).delayMs({ retryAfter: 1.1 }, 1, undefined)).toBe(1_100);
  });

  it('what the server says instead of either, even when it is longer or nothing', () => {
    const jittered = policy({ jitter: () => 7, maxDelayMs: 9_000 });
    expect(jittered.delayMs({ retryAfter: 0 }, 1, undefined)).toBe(0);
    expect(jittered.delayMs({ retryAfter: 9 }, 1, undefined)).toBe(9_000);
    expect(jittered.delayMs({ retryAfter: -1 }, 1, undefined)).toBe(7_000);
  });

  it('none at all, when the server says later than maxDelay', () => {
    expect(policy({ maxDelayMs: 9_000 }).delayMs({ retryAfter: 9.001 }, 1, undefined)).toBe(
      undefined,
    );
  });

  it.each([Number.NaN, -1, -Infinity, Infinity, undefined, null, '2', 2n])(
    'a jitter that answers %p is told to the author, with what the body threw',
    (answer) => {
      const broken = policy({ jitter: () => answer as number });
      const thrown = thrownBy(() => broken.delayMs(BOOM, 1, undefined));
      expect(thrown).toBeInstanceOf(RangeError);
      expect(thrown).toMatchObject({
        message: expect.stringContaining(String(answer)),
        cause: BOOM,
      });
    },
  );

  it('one that grows beyond all numbers is capped like any other', () => {
    expect(policy({ jitter: () => Infinity, maxDelayMs: 9_000 }).delayMs(BOOM, 1, 1)).toBe(9_000);
  });
});

describe('is the body repeated?', () => {
  it('as often as the limit says, after the errors that are listed', () => {
    expect([1, 2, 3, 4].map((attempt) => policy({}).wants(BOOM, attempt))).toEqual([
      true,
      true,
      true,
      false,
    ]);
    expect(policy({ limit: 0 }).wants(BOOM, 1)).toBe(false);
    expect(policy({}).wants('boom', 1)).toBe(false);
  });

  it('not when the predicate itself fails', () => {
    const matches = matcherOf([(error) => (error as { code: string }).code.startsWith('E')]);
    expect(policy({ matches }).wants({ code: 'EBUSY' }, 1)).toBe(true);
    expect(policy({ matches }).wants(undefined, 1)).toBe(false);
  });
});

function headers(said: Readonly<Record<string, unknown>>): object {
  return { response: { headers: said } };
}

function thrownBy(fn: () => unknown): unknown {
  try {
    fn();
  } catch (error) {
    return error;
  }
  throw new Error('expected an error, got none');
}
