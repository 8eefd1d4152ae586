import { createHash } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { StoreKey } from 'nestjs-cmdx';
import { KeyProblem } from '../../../lib/keys/key-resolver.js';
import { toSegment } from '../../../lib/keys/store-key.js';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const LONG = 'x'.repeat(201);
const LONG_HASHED = `sha256-${sha256(LONG)}`;
/** Pieces of texts, each with the one it could be taken for. */
const TWINS: Readonly<Record<string, string>> = {
  ':': '%3A',
  '%3A': ':',
  '%': '%25',
  '%25': '%',
  ':lb': '%3Alb',
  '%3Alb': '%253Alb',
  ':f': '%3Af',
  a: 'b',
  'sha256-': 'sha256',
  [LONG]: LONG_HASHED,
};

describe('what is a store key made of?', () => {
  it('namespace, task and segment', () => {
    expect(StoreKey.compose('cmdx:lock', 'Accounts.reconcile', 'acct_42')).toBe(
      'cmdx:lock:Accounts.reconcile:acct_42',
    );
    expect(StoreKey.compose('cmdx:rl', 'Auth.forgot')).toBe('cmdx:rl:Auth.forgot');
  });

  it.each([
    ['', 'Accounts.reconcile', 'x'],
    ['cmdx:lock', '', 'x'],
    ['cmdx:lock', 'Accounts.reconcile', ''],
  ])('an empty part throws: %p %p %p', (namespace, task, segment) => {
    expect(() => StoreKey.compose(namespace, task, segment)).toThrow('expected non-empty parts');
  });
});

describe('what is a segment?', () => {
  it.each([
    ['acct_42', 'acct_42'],
    ['a:b', 'a:b'],
    ['50%', '50%'],
    [42, '42'],
    [-0, '0'],
    [1.5, '1.5'],
    [10n ** 20n, '100000000000000000000'],
    ['user@example.com', 'user@example.com'],
    [' ', ' '],
  ])('%p is %p', (value, text) => {
    expect(toSegment(value)).toBe(text);
  });

  it.each([[null], [undefined], ['']])('%p is blank', (value) => {
    expect(toSegment(value)).toBeUndefined();
  });

  it.each([
    [{}],
    [[]],
    [['a']],
    [true],
    [false],
    [Number.NaN],
    [Infinity],
    [Symbol('s')],
    [() => 'x'],
    [new Date()],
  ])('%p is no segment', (value) => {
    expect(() => toSegment(value)).toThrow(KeyProblem);
  });

  it('up to 200 bytes it stays readable, over that it is hashed', () => {
    const fits = 'x'.repeat(200);
    expect(toSegment(fits)).toBe(fits);
    expect(toSegment(`${fits}x`)).toBe(`sha256-${sha256(`${fits}x`)}`);
    // Bytes count, not characters.
    expect(toSegment('é'.repeat(100))).toBe('é'.repeat(100));
    expect(toSegment('é'.repeat(101))).toBe(`sha256-${sha256('é'.repeat(101))}`);
    expect(toSegment('k'.repeat(10_240))).toHaveLength('sha256-'.length + 64);
  });

  it('one that looks like a hash is hashed too, so nobody can name the hash of another', () => {
    const long = 'x'.repeat(300);
    const forged = toSegment(long) as string;
    expect(toSegment(forged)).toBe(`sha256-${sha256(forged)}`);
    expect(toSegment('sha256-')).toBe(`sha256-${sha256('sha256-')}`);
  });

  it.each([
    ['a:lb', 'a%3Alb'],
    ['a:f', 'a%3Af'],
    ['50%:x:lb', '50%25%3Ax%3Alb'],
    [':lb', '%3Alb'],
    ['lb', 'lb'],
    ['a:lbx', 'a:lbx'],
  ])('%p, which may end like a record of ours, becomes %p', (value, text) => {
    expect(toSegment(value)).toBe(text);
  });

  it('different texts never share a segment', () => {
    // The other text is the first with some pieces written as they would be escaped, or the other
    // way round: unrelated texts would hardly ever meet.
    const piece = fc.constantFrom(...Object.keys(TWINS));
    const pieces = fc.array(fc.tuple(piece, fc.boolean()), { minLength: 1, maxLength: 6 });
    fc.assert(
      fc.property(pieces, (list) => {
        const one = list.map(([each]) => each).join('');
        const other = list.map(([each, swap]) => (swap ? TWINS[each] : each)).join('');
        return (toSegment(one) === toSegment(other)) === (one === other);
      }),
      { numRuns: 20_000 },
    );
    for (const escaped of ['a:lb', 'a%3Alb', 'a%253Alb', 'a%25253Alb']) {
      const others = ['a:lb', 'a%3Alb', 'a%253Alb', 'a%25253Alb'].filter((t) => t !== escaped);
      expect(others.map(toSegment)).not.toContain(toSegment(escaped));
    }
  });

  it('never ends like a record of ours', () => {
    fc.assert(
      fc.property(fc.string(), fc.constantFrom(':lb', ':f', ''), (text, end) => {
        expect(toSegment(text + end) ?? '').not.toMatch(/:(?:lb|f)$/);
      }),
    );
  });
});
