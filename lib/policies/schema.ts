import type { StandardSchemaV1 } from '@standard-schema/spec';
import { type Awaitable, isThenable } from '../awaitable.js';
import type { SchemaIssue } from '../errors/refusals.js';

/** A schema of any library that implements Standard Schema, version 1: zod, valibot, arktype and others. */
export type Schema = StandardSchemaV1;

/** What a schema made of a value. */
export type Checked =
  | { readonly value: unknown; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** Of a schema that refuses and says no more: a list of issues is a no, also an empty one. */
const UNEXPLAINED: StandardSchemaV1.Issue = { message: 'Invalid value' };

/** @param path where the value stands, written before the path of each issue */
export function check(schema: Schema, value: unknown, path: string): Awaitable<Checked> {
  const result = schema['~standard'].validate(value);
  return isThenable(result)
    ? Promise.resolve(result).then((settled) => toChecked(settled, path))
    : toChecked(result as StandardSchemaV1.Result<unknown>, path);
}

function toChecked(result: StandardSchemaV1.Result<unknown>, path: string): Checked {
  if (!result.issues) return { value: result.value };
  const issues = result.issues.length > 0 ? result.issues : [UNEXPLAINED];
  return {
    issues: issues.map((issue) => ({
      message: issue.message,
      // Not `map()`: a path of arktype is an array of its own kind, which fills itself when made anew.
      path: [path, ...Array.from(issue.path ?? [], textOf)].filter((part) => part !== '').join('.'),
    })),
  };
}

function textOf(segment: PropertyKey | StandardSchemaV1.PathSegment): string {
  return String(typeof segment === 'object' ? segment.key : segment);
}

export function isSchema(value: unknown): value is Schema {
  const { '~standard': standard } = (value ?? {}) as { '~standard'?: { validate?: unknown } };
  return typeof standard?.validate === 'function';
}
