import { runInNewContext } from 'node:vm';
import { describe, expect, it } from '@jest/globals';
import type { StandardSchemaV1 } from '@standard-schema/spec';
import { type } from 'arktype';
import * as v from 'valibot';
import * as z from 'zod';
import { check, isSchema } from '../../../lib/policies/schema.js';

/** One question, asked in three languages. */
const LIBRARIES = [
  ['zod', z.object({ customer: z.object({ tags: z.array(z.string()) }) })],
  ['valibot', v.object({ customer: v.object({ tags: v.array(v.string()) }) })],
  ['arktype', type({ customer: { tags: 'string[]' } })],
] as const satisfies readonly (readonly [string, StandardSchemaV1])[];

describe.each(LIBRARIES)('what is made of a value with %s?', (_library, schema) => {
  it('a schema', () => {
    expect(isSchema(schema)).toBe(true);
  });

  it('the parsed value', () => {
    const value = { customer: { tags: ['a'] } };
    expect(check(schema, value, '')).toEqual({ value });
  });

  it('the issues, each with its path below the given one', () => {
    const value = { customer: { tags: ['a', 5] } };
    expect(check(schema, value, '')).toMatchObject({ issues: [{ path: 'customer.tags.1' }] });
    expect(check(schema, value, '2')).toMatchObject({ issues: [{ path: '2.customer.tags.1' }] });
    expect(check(schema, undefined, '2')).toMatchObject({ issues: [{ path: '2' }] });
    expect(check(schema, null, '0')).toMatchObject({ issues: [{ path: '0' }] });
    expect(check(schema, undefined, '')).toMatchObject({
      issues: [{ path: '', message: expect.stringMatching(/./) }],
    });
  });
});

describe('what else may a schema do?', () => {
  it('answer later', async () => {
    const taken = z.string().refine(async (name) => name !== 'ada', 'taken');
    const later = check(taken, 'ada', 'name');
    expect(later).toBeInstanceOf(Promise);
    await expect(later).resolves.toEqual({ issues: [{ message: 'taken', path: 'name' }] });
    await expect(check(taken, 'bob', 'name')).resolves.toEqual({ value: 'bob' });
  });

  it('answer with a promise of another realm', async () => {
    const foreign = runInNewContext('Promise.resolve({ value: 1 })') as Promise<{ value: number }>;
    expect(foreign).not.toBeInstanceOf(Promise);
    await expect(
      check(
        schemaOf(() => foreign),
        1,
        '',
      ),
    ).resolves.toEqual({ value: 1 });
  });

  it('name its path as keys or as segments, of any kind', () => {
    const symbol = Symbol('secret');
    const schema = schemaOf(() => ({
      issues: [{ message: 'no', path: ['a', { key: 0 }, symbol] }, { message: 'no' }],
    }));
    expect(check(schema, 1, '')).toEqual({
      issues: [
        { message: 'no', path: 'a.0.Symbol(secret)' },
        { message: 'no', path: '' },
      ],
    });
  });

  it('make undefined of a value', () => {
    expect(
      check(
        schemaOf(() => ({ value: undefined })),
        1,
        '',
      ),
    ).toEqual({ value: undefined });
  });
});

describe('what is no schema?', () => {
  it.each([
    [undefined],
    [null],
    ['string'],
    [{}],
    [{ parse: () => 1 }],
    [{ '~standard': {} }],
    [{ '~standard': { validate: true } }],
    [{ '~standard': null }],
    [class Dto {}],
  ])('%p', (value) => {
    expect(isSchema(value)).toBe(false);
  });
});

function schemaOf(
  validate: (
    value: unknown,
  ) => StandardSchemaV1.Result<unknown> | Promise<StandardSchemaV1.Result<unknown>>,
): StandardSchemaV1 {
  return { '~standard': { version: 1, vendor: 'test', validate } };
}
