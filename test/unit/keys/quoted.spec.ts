import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { unquoted } from '../../../lib/keys/quoted.js';

/** As RFC 9651 writes a String. */
const quote = (text: string): string => `"${text.replaceAll(/["\\]/g, String.raw`\$&`)}"`;

describe('what does a header say that quotes its value?', () => {
  it.each([
    ['"k"', 'k'],
    ['k', 'k'],
    ['  "k" ', 'k'],
    ['""', ''],
    [String.raw`"a\"b"`, 'a"b'],
    [String.raw`"a\\b"`, String.raw`a\b`],
    [String.raw`"\\\""`, String.raw`\"`],
    ['"a b;c=1"', 'a b;c=1'],
  ])('%s: %s', (value, text) => {
    expect(unquoted(value)).toBe(text);
  });

  it.each([
    ['"'],
    ['"k'],
    ['k"'],
    ['a"k"b'],
    ['"a"b"'],
    [String.raw`"a\b"`],
    [String.raw`"a\"`],
    [' k '],
  ])('%s: itself, because it is no quotation', (value) => {
    expect(unquoted(value)).toBe(value);
  });

  it.each([[undefined], [null], [5], [['"k"', '"k"']]])('%p: itself', (value) => {
    expect(unquoted(value)).toBe(value);
  });

  it('whatever was quoted, once and not twice', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('"', '\\', 'a', ' ', 'é') }), (text) => {
        expect(unquoted(quote(text))).toBe(text);
        expect(unquoted(quote(quote(text)))).toBe(quote(text));
      }),
      { numRuns: 5_000 },
    );
  });

  it('in time that grows with its length', () => {
    const startedAt = performance.now();
    const long = `"${'\\"'.repeat(50_000)}`;
    expect(unquoted(long)).toBe(long);
    expect(unquoted(' '.repeat(100_000))).toHaveLength(100_000);
    expect(performance.now() - startedAt).toBeLessThan(1_000);
  });
});
