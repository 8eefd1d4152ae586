import { describe, expect, it } from '@jest/globals';
import { HttpException, NotFoundException } from '@nestjs/common';
import { isErrorSelection, matcherOf } from '../../../lib/policies/error-matcher.js';

class Flaky extends Error {}
class Worse extends Flaky {}
class Other extends Error {}
/** Anything can be thrown. */
class Plain {}
abstract class Abstract extends Error {}
class Concrete extends Abstract {}

describe('which errors does a class mean?', () => {
  it.each([
    ['its own', Flaky, new Flaky(), true],
    ['those of a subclass', Flaky, new Worse(), true],
    ['not those of its base', Worse, new Flaky(), false],
    ['not others', Flaky, new Other(), false],
    ['all of them', Error, new TypeError(), true],
    ['a native one', TypeError, new TypeError(), true],
    ['not another native one', TypeError, new RangeError(), false],
    ['a list of errors', AggregateError, new AggregateError([]), true],
    ['an abstract one', Abstract, new Concrete(), true],
    ['one that is no error', Plain, new Plain(), true],
    ['one of Nest', HttpException, new NotFoundException(), true],
    ['not a text', Error, 'boom', false],
    ['not nothing', Error, undefined, false],
  ] as const)('%s', (_what, selection, thrown, expected) => {
    expect(matcherOf([selection])(thrown)).toBe(expected);
  });

  it('one whose instances say so themselves (Symbol.hasInstance)', () => {
    class Branded {
      static [Symbol.hasInstance](value: unknown): boolean {
        return (value as { brand?: unknown }).brand === 'ours';
      }
    }
    expect(matcherOf([Branded])({ brand: 'ours' })).toBe(true);
    expect(matcherOf([Branded])({ brand: 'theirs' })).toBe(false);
  });

  it('one in the style before classes', () => {
    const Old = function (this: Error) {} as unknown as new () => Error;
    Old.prototype = Object.create(Error.prototype) as Error;
    expect(matcherOf([Old])(new Old())).toBe(true);
    expect(matcherOf([Old])(new Error())).toBe(false);
  });
});

describe('which errors does a predicate mean?', () => {
  const busy = { code: 'EBUSY' };

  it.each([
    ['an arrow', (error: unknown) => (error as { code?: string }).code === 'EBUSY'],
    [
      'a function',
      function isBusy(error: unknown): boolean {
        return (error as { code?: string }).code === 'EBUSY';
      },
    ],
    ['a method', { isBusy: (error: unknown) => error === busy }.isBusy],
    ['a bound one', ((wanted: unknown, error: unknown) => error === wanted).bind(undefined, busy)],
  ])('%s: those for which it answers true', (_form, predicate) => {
    expect(matcherOf([predicate])(busy)).toBe(true);
    expect(matcherOf([predicate])({ code: 'ENOENT' })).toBe(false);
  });

  it('only true is a yes', () => {
    for (const answer of [1, 'yes', {}, Promise.resolve(true)]) {
      expect(matcherOf([() => answer as unknown as boolean])(busy)).toBe(false);
    }
  });
});

describe('which errors does a list mean?', () => {
  it('those that any of it means', () => {
    const matches = matcherOf([[Flaky, (error) => error === 'boom'], Other]);
    expect([new Worse(), 'boom', new Other()].map(matches)).toEqual([true, true, true]);
    expect([new Error(), 'bang', undefined].map(matches)).toEqual([false, false, false]);
  });
});

describe('what is a selection of errors?', () => {
  it.each([[Error], [() => true], [[Flaky, () => true]]])('%p', (value) => {
    expect(isErrorSelection(value)).toBe(true);
  });

  it.each([[[]], ['Error'], [new Error()], [[Error, 'Flaky']], [null], [undefined], [{}], [true]])(
    'not %p',
    (value) => {
      expect(isErrorSelection(value)).toBe(false);
    },
  );
});
