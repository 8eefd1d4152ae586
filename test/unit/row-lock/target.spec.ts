import { describe, expect, it } from '@jest/globals';
import { lockStatement, readStatement } from '../../../lib/row-lock/lock-statement.js';
import { namedTable, quoteName } from '../../../lib/row-lock/target.js';

describe('how is a name written in SQL?', () => {
  it.each([
    ['invoices', '"invoices"'],
    ['Invoice', '"Invoice"'],
    ['order', '"order"'],
    ['a"b', '"a""b"'],
    ['x"; DROP TABLE invoices; --', '"x""; DROP TABLE invoices; --"'],
    ['ünïcode', '"ünïcode"'],
  ])('%s', (name, sql) => {
    expect(quoteName(name, 'test')).toBe(sql);
  });

  it.each([
    ['', 'empty'],
    ['a\0b', 'NUL'],
    ['x'.repeat(64), 'too long'],
    [7, 'a number'],
    [undefined, 'nothing'],
  ])('%p is none (%s)', (name, _why) => {
    expect(() => quoteName(name, 'Invoices.pay: @WithRowLock')).toThrow(
      /^Invoices\.pay: @WithRowLock: expected the name of a table or column, got /,
    );
  });

  it('a point stands between schema and table, and two are one too many', () => {
    expect(namedTable('billing.invoices', 'test').sql).toBe('"billing"."invoices"');
    expect(() => namedTable('a.b.c', 'test')).toThrow("expected 'table' or 'schema.table'");
    expect(() => namedTable('.invoices', 'test')).toThrow('expected the name of a table');
  });

  it('a key has columns, each once', () => {
    expect(() => namedTable({ table: 't', key: [] }, 'test')).toThrow('expected a primary key');
    expect(() => namedTable({ table: 't', key: ['a', 'a'] }, 'test')).toThrow(
      'different key columns',
    );
    expect(() => namedTable({ table: 't', key: 7 as never }, 'test')).toThrow('expected names');
  });
});

describe('what does a statement hold?', () => {
  const seats = namedTable({ table: 'seats', key: ['train', 'seat'] }, 'test');
  const keys = [
    [12, "4A'; --"],
    [12n, '4B'],
  ];

  it('names that are quoted and places; every value stands apart', () => {
    for (const patience of ['nowait', 'skip locked', 5_000] as const) {
      const { sql, values } = lockStatement(seats, keys, 'no key update', patience);
      expect(sql).not.toContain('4A');
      expect(values.slice(-4)).toEqual([12, "4A'; --", '12', '4B']);
      expect(sql).toContain('ORDER BY t."train", t."seat" FOR NO KEY UPDATE OF t');
    }
    expect(readStatement(seats, keys).values).toEqual([12, "4A'; --", '12', '4B']);
  });

  it('a wait is a whole number of milliseconds that Postgres takes', () => {
    const waits = [0.2, 1_500.4, 1e12].map(
      (ms) => lockStatement(seats, keys, 'update', ms).values[0],
    );
    expect(waits).toEqual(['1ms', '1501ms', '2147483647ms']);
  });
});
