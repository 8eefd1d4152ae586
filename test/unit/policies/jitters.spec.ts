import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import {
  type Backoff,
  BUILT_IN_JITTERS,
  builtInJitter,
  type BuiltInJitter,
  isBuiltInJitter,
  largestFactor,
} from '../../../lib/policies/jitters.js';

const LOWEST = 0;
const HIGHEST = 1 - Number.EPSILON;

function answer(name: BuiltInJitter, told: Partial<Backoff> = {}): number {
  const whole = { attempt: 1, delay: 2, maxDelay: Infinity, random: LOWEST, error: undefined };
  return builtInJitter(name)({ previous: told.delay ?? 2, ...whole, ...told });
}

describe('how long does a jitter of ours sleep before the repetitions 1 to 6, for a delay of 2 s?', () => {
  const attempts = [1, 2, 3, 4, 5, 6];

  it.each([
    ['exponential', [2, 4, 8, 16, 32, 64]],
    ['linear', [2, 4, 6, 8, 10, 12]],
    ['fibonacci', [2, 2, 4, 6, 10, 16]],
  ] as const)('%s: %p, whatever the dice say', (name, expected) => {
    for (const random of [LOWEST, 0.5, HIGHEST]) {
      expect(attempts.map((attempt) => answer(name, { attempt, random }))).toEqual(expected);
    }
  });

  it.each([
    ['half_random', 1, 1.5, 2],
    ['full_random', 0, 1, 2],
    ['bounded_random', 2, 3, 4],
  ] as const)('%s: from %p over %p to below %p, at each of them', (name, from, middle, to) => {
    for (const attempt of attempts) {
      expect(answer(name, { attempt, random: LOWEST })).toBe(from);
      expect(answer(name, { attempt, random: 0.5 })).toBe(middle);
      const longest = answer(name, { attempt, random: HIGHEST });
      expect(longest).toBeLessThanOrEqual(to);
      expect(longest).toBeGreaterThan(to - 1e-9);
    }
  });

  it('decorrelated_jitter: from the delay to three times the last sleep, at most maxDelay', () => {
    expect(answer('decorrelated_jitter', { previous: 5, random: LOWEST })).toBe(2);
    expect(answer('decorrelated_jitter', { previous: 5, random: 0.5 })).toBe(8.5);
    expect(answer('decorrelated_jitter', { previous: 5, random: HIGHEST })).toBeCloseTo(15);
    expect(answer('decorrelated_jitter', { previous: 5, random: 0.5, maxDelay: 7 })).toBe(7);
  });
});

describe('can a sleep leave its bounds?', () => {
  it.each(BUILT_IN_JITTERS)('%s: never below zero, never above its largest factor', (name) => {
    const told = fc.record({
      // Delays are whole milliseconds.
      delay: fc.nat(1_000_000).map((ms) => ms / 1_000),
      dice: fc.array(fc.double({ min: 0, max: HIGHEST, noNaN: true }), {
        minLength: 1,
        maxLength: 20,
      }),
    });
    fc.assert(
      fc.property(told, ({ delay, dice }) => {
        let previous = delay;
        for (const [position, random] of dice.entries()) {
          const attempt = position + 1;
          const seconds = answer(name, { attempt, delay, previous, random });
          expect(seconds).toBeGreaterThanOrEqual(0);
          expect(seconds).toBeLessThanOrEqual(delay * largestFactor(name, attempt) * (1 + 1e-9));
          previous = seconds;
        }
      }),
    );
  });

  it.each(BUILT_IN_JITTERS)(
    '%s: its largest factor is reached, so no boot warns in vain',
    (name) => {
      let previous = 1;
      for (let attempt = 1; attempt <= 8; attempt++) {
        previous = answer(name, { attempt, delay: 1, previous, random: HIGHEST });
        expect(previous).toBeCloseTo(largestFactor(name, attempt), 6);
      }
    },
  );
});

describe('which names are there?', () => {
  it('seven', () => {
    expect([...BUILT_IN_JITTERS].toSorted()).toEqual([
      'bounded_random',
      'decorrelated_jitter',
      'exponential',
      'fibonacci',
      'full_random',
      'half_random',
      'linear',
    ]);
    expect(Object.isFrozen(BUILT_IN_JITTERS)).toBe(true);
  });

  it('none that every object has', () => {
    for (const name of ['constructor', 'toString', '__proto__', 'Linear', '']) {
      expect(isBuiltInJitter(name)).toBe(false);
    }
    expect(BUILT_IN_JITTERS.every(isBuiltInJitter)).toBe(true);
  });
});
