import { inspect, isDeepStrictEqual } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { richJson, UnencodableError } from '../../../lib/policies/rich-json.js';

/** All that can be seen of a value. */
const look = (value: unknown): string =>
  inspect(value, { depth: Infinity, maxArrayLength: null, maxStringLength: null });

describe('does a text say all that its value is?', () => {
  it('whatever the value: what comes back is the same, and it was not touched', () => {
    let kept = 0;
    const anything = fc.anything({
      withBigInt: true,
      withBoxedValues: true,
      withDate: true,
      withMap: true,
      withNullPrototype: true,
      withSet: true,
      withSparseArray: true,
      withTypedArray: true,
      withUnicodeString: true,
      withObjectString: true,
      key: fc.oneof(
        fc.string(),
        fc.constantFrom('__proto__', 'constructor', 'toJSON', 'then', '0'),
      ),
    });
    fc.assert(
      fc.property(anything, (value) => {
        const before = look(value);
        let text: string;
        try {
          text = richJson.encode(value);
        } catch (error) {
          expect(error).toBeInstanceOf(UnencodableError);
          return;
        } finally {
          expect(look(value)).toBe(before);
        }
        kept += 1;
        const back = richJson.decode(text);
        expect(look(back)).toBe(before);
        // One invalid date is no other's equal.
        if (!before.includes('Invalid Date')) expect(isDeepStrictEqual(back, value)).toBe(true);
      }),
      { numRuns: 1_000 },
    );
    expect(kept).toBeGreaterThan(300);
  });

  it('every character comes back, and the text has one line', () => {
    const text = richJson.encode({ 'é€😀\n\u2028': '\ud800"\\\0' });
    expect(text).not.toContain('\n');
    expect(richJson.decode(text)).toEqual({ 'é€😀\n\u2028': '\ud800"\\\0' });
  });

  it('one object twice comes back as one object twice', () => {
    const line = { price: 5 };
    const order: Record<string, unknown> = { first: line, second: line };
    order['self'] = order;
    const back = richJson.decode(richJson.encode(order)) as typeof order;
    expect(back['first']).toBe(back['second']);
    expect(back['self']).toBe(back);
  });

  it('a large value of bytes has no limit of its own', () => {
    const bytes = Buffer.alloc(3_000_000, 7);
    expect(bytes.equals(richJson.decode(richJson.encode(bytes)) as Buffer)).toBe(true);
  });

  it('bytes come back in memory of their own', () => {
    const back = richJson.decode(richJson.encode(new Uint8Array(4))) as Uint8Array;
    expect(back.buffer.byteLength).toBe(4);
  });
});

describe('what can a text not make?', () => {
  it.each([
    ['a class', new (class User {})(), 'an instance of User'],
    ['a class without a name', new (class {})(), 'an instance of a class'],
    ['what inherits from a plain object', Object.create({ a: 1 }), 'an instance of Object'],
    ['a function', () => 1, 'a function'],
    ['a symbol', Symbol('a'), 'a symbol'],
    ['an iterator', [1].values(), 'an instance of'],
    ['a property of an array', Object.assign([1, 2], { sum: 3 }), 'a further property "sum"'],
    [
      'a property of a Date',
      Object.assign(new Date(0), { zone: 'UTC' }),
      'a further property "zone"',
    ],
  ])('%s, deep inside too', (_name, value, reason) => {
    for (const each of [value, { a: [value] }, new Map([['a', value]]), new Map([[value, 1]])]) {
      expect(() => richJson.encode(each)).toThrow(UnencodableError);
      expect(() => richJson.encode(each)).toThrow(reason);
    }
    expect(() => richJson.encode(new Set([[value]]))).toThrow(reason);
  });
});
