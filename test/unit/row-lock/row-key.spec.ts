import { describe, expect, it } from '@jest/globals';
import { isKeyProblem } from '../../../lib/keys/key-resolver.js';
import { keysOf } from '../../../lib/row-lock/row-key.js';
import { namedTable } from '../../../lib/row-lock/target.js';

const invoices = namedTable('invoices', 'test');
const seats = namedTable({ table: 'seats', key: ['train', 'seat'] }, 'test');

function problemOf(table: typeof invoices, id: unknown): string {
  try {
    keysOf(table, id);
  } catch (error) {
    if (isKeyProblem(error)) return error.message;
    throw error;
  }
  throw new Error('expected a problem');
}

describe('which rows does a value name?', () => {
  it('a value names one row, a list names each of its rows once', () => {
    expect(keysOf(invoices, 7)).toEqual([[7]]);
    expect(keysOf(invoices, ['b', 'a', 'b'])).toEqual([['b'], ['a']]);
    expect(keysOf(invoices, [1, '1', 1n])).toHaveLength(1);
  });

  it('an object names the columns of a composite key, in whatever order', () => {
    expect(keysOf(seats, { seat: '4A', train: 12 })).toEqual([[12, '4A']]);
    expect(keysOf(invoices, { id: 7 })).toEqual([[7]]);
  });

  it.each([
    ['nothing', undefined],
    ['an empty text', ''],
    ['NaN', Number.NaN],
    ['a boolean', true],
    ['a date', new Date()],
    ['a text that no column can hold', 'a\0b'],
    ['an object of other columns', { number: 7 }],
    ['an object with more than the key', { id: 7, owner: 'eve' }],
    ['an object whose key is inherited', Object.create({ id: 7 })],
    ['an object of an object', { id: { $gt: 0 } }],
    ['a list in a list', [[1]]],
    ['an empty list', []],
    ['more rows than can be locked at once', Array.from({ length: 1_001 }, (_, id) => id)],
  ])('%s is no key', (_what, id) => {
    expect(problemOf(invoices, id)).toMatch(/^expected /);
  });

  it('half of a composite key is none', () => {
    expect(problemOf(seats, 12)).toBe('expected an object of train, seat for seats, got 12');
    expect(problemOf(seats, { train: 12 })).toContain('got one of train');
  });
});
