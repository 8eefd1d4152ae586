import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { looksLikeMilliseconds, toMilliseconds } from '../../../lib/clock/duration.js';
import { isDefinitionError } from '../../../lib/errors/definition.error.js';

const WHERE = 'Accounts.reconcile: @LockWith option "ttl"';

describe('how long is a duration?', () => {
  it.each([
    [1, 1_000],
    [0.25, 250],
    [0.29, 290],
    [300, 300_000],
    ['250ms', 250],
    ['30s', 30_000],
    ['1.5s', 1_500],
    ['0.5ms', 1],
    ['10m', 600_000],
    ['24h', 86_400_000],
    ['7d', 604_800_000],
  ])('%p is %p milliseconds', (written, ms) => {
    expect(toMilliseconds(written, WHERE)).toBe(ms);
  });

  it('keeps every whole millisecond that is written in seconds', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1_000_000_000 }), (ms) => {
        expect(toMilliseconds(ms / 1_000, WHERE)).toBe(ms);
      }),
    );
  });

  it('rounds a fraction of a millisecond up, so that nothing ends early', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 10_000_000 }), (microseconds) => {
        expect(toMilliseconds(microseconds / 1e6, WHERE)).toBe(Math.ceil(microseconds / 1_000));
      }),
    );
  });

  it.each([
    [Number.NaN],
    [Number.POSITIVE_INFINITY],
    [Number.NEGATIVE_INFINITY],
    [-1],
    [0],
    [-0],
    [1e-9],
    [1e12],
    ['0s'],
    ['-5s'],
    ['5'],
    ['5 s'],
    ['5S'],
    ['1e3s'],
    ['s'],
    [''],
    ['5s '],
    ['5w'],
    [true],
    [null],
    [undefined],
    [{}],
    [[5]],
    [5n],
  ])('refuses %p, and says where it stands and what was expected', (written) => {
    let thrown: unknown;
    try {
      toMilliseconds(written, WHERE);
    } catch (error) {
      thrown = error;
    }
    expect(isDefinitionError(thrown)).toBe(true);
    expect((thrown as Error).message).toMatch(
      /^Accounts\.reconcile: @LockWith option "ttl": expected more than zero seconds.*'250ms'.*; got ./,
    );
  });

  it('accepts a length of nothing only where it makes sense', () => {
    expect(toMilliseconds(0, WHERE, true)).toBe(0);
    expect(toMilliseconds('0s', WHERE, true)).toBe(0);
    expect(() => toMilliseconds(-1, WHERE, true)).toThrow('expected zero or more seconds');
  });
});

describe('what looks like milliseconds written as seconds?', () => {
  it.each([[1_000], [60_000], [300_000]])('%p does', (value) => {
    expect(looksLikeMilliseconds(value)).toBe(true);
  });

  it.each([[1], [60], [999], [1_500], [86_401], ['60000ms'], [Number.NaN], [undefined]])(
    '%p does not',
    (value) => {
      expect(looksLikeMilliseconds(value)).toBe(false);
    },
  );
});
