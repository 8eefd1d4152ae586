import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import type { Invocation } from 'nestjs-cmdx';
import type { CompiledKey } from '../../../lib/keys/compiled-key.js';
import { scopedKey } from '../../../lib/keys/scoped-key.js';
import { toSegment } from '../../../lib/keys/store-key.js';

/** A key that is one of the arguments. */
function argument(index: number, facts: Partial<CompiledKey> = {}): CompiledKey {
  return {
    read: ({ args }) => args[index],
    async: false,
    fromRequest: false,
    headers: 'none',
    text: `arg(${index})`,
    ...facts,
  };
}

const read = (key: CompiledKey | undefined, ...args: unknown[]): unknown =>
  key?.read({ args } as unknown as Invocation);

const scoped = scopedKey(argument(1), argument(0));
const shared = scopedKey(argument(0), 'shared');
const part = fc.string({
  unit: fc.constantFrom(':', '%', 'a', '25', '3A', ':lb', 'sha256-'),
  minLength: 1,
  maxLength: 5,
});

describe('do the keys of two scopes ever meet?', () => {
  it('no, whatever clients choose for either', () => {
    fc.assert(
      fc.property(part, part, part, part, (a, b, c, d) => {
        const same = toSegment(read(scoped, a, b)) === toSegment(read(scoped, c, d));
        return same === (a === c && b === d);
      }),
      { numRuns: 20_000 },
    );
    // The random ones seldom meet in one concatenation; these always do.
    fc.assert(
      fc.property(part, part, part, (a, b, c) => {
        return read(scoped, `${a}:${b}`, c) !== read(scoped, a, `${b}:${c}`);
      }),
      { numRuns: 5_000 },
    );
  });

  it('nor does a shared one ever read like a scoped one', () => {
    fc.assert(
      fc.property(part, part, part, (a, b, c) => read(shared, c) !== read(scoped, a, b)),
      { numRuns: 5_000 },
    );
    expect(read(shared, 'ada:1')).toBe('ada%3A1');
    expect(read(scoped, 'ada', '1')).toBe('ada:1');
  });

  it('numbers are what they read like', () => {
    expect(read(scoped, 1, 2n)).toBe('1:2');
  });
});

describe('what is blank?', () => {
  it.each([[undefined], [null], ['']])('all of it, when one of the two is %p', (blank) => {
    expect(read(scoped, blank, 'key')).toBeUndefined();
    expect(read(scoped, 'scope', blank)).toBeUndefined();
    expect(read(shared, blank)).toBeUndefined();
  });

  it('also when one of the two comes later', async () => {
    await expect(read(scoped, Promise.resolve(null), 'key')).resolves.toBeUndefined();
    await expect(read(scoped, 'scope', Promise.resolve(''))).resolves.toBeUndefined();
    await expect(read(scoped, Promise.resolve('scope'), 'a:b')).resolves.toBe('scope:a%3Ab');
    await expect(read(shared, Promise.resolve('a:b'))).resolves.toBe('a%3Ab');
  });
});

describe('what is known of it before a call?', () => {
  it('that it is asynchronous, or from the request, when one of the two is', () => {
    const facts = (key: CompiledKey | undefined) => [key?.async, key?.fromRequest, key?.headers];
    expect(facts(scopedKey(argument(1), argument(0)))).toEqual([false, false, 'none']);
    expect(facts(scopedKey(argument(1, { headers: 'all' }), argument(0, { async: true })))).toEqual(
      [true, false, 'all'],
    );
    expect(facts(scopedKey(argument(1, { async: true, fromRequest: true }), 'shared'))).toEqual([
      true,
      true,
      'none',
    ]);
  });

  it('of the task itself: the scope and a colon that no shared key has, or nothing', () => {
    const once = scopedKey(undefined, argument(0));
    expect([read(once, 'a:b'), once?.text]).toEqual(['a%3Ab:', 'arg(0)']);
    expect(scopedKey(undefined, 'shared')).toBeUndefined();
  });
});
