import { show } from '../errors/definition.error.js';
import type { Invocation } from '../invocation.js';
import { KeyProblem, type NoFunction } from '../keys/key-resolver.js';
import type { Table } from './target.js';

/** One value of a key. */
export type KeyPart = string | number | bigint;

/** The key of one row: its value, or an object of all key columns. */
export type RowKey = KeyPart | Readonly<Record<string, KeyPart>>;

/** Which rows: one, or several. */
export type RowId = RowKey | readonly RowKey[];

type MaybeRowId = RowId | null | undefined;

/** A function of the guarded method's arguments that answers which rows; `this` is the instance. */
export type RowKeyFunction<A extends readonly unknown[] = readonly never[]> = (
  ...args: A
) => MaybeRowId | Promise<MaybeRowId>;

/** An object, or an injectable class, that answers which rows. */
export interface RowKeyResolver {
  call(invocation: Invocation): MaybeRowId | Promise<MaybeRowId>;
}

/** Every form in which a decorator may be told which rows, a function apart. */
export type StaticRowKey =
  string | (RowKeyResolver & NoFunction) | (abstract new (...args: never[]) => RowKeyResolver);

/** The values of one key, in the order of the key's columns. */
export type KeyValues = readonly KeyPart[];

/** So many rows can be locked at once. */
const MOST_ROWS = 1_000;

/**
 * The keys of the rows that are asked for, each once.
 *
 * @throws KeyProblem for anything that is no key of that table
 */
export function keysOf(table: Table, id: unknown): readonly KeyValues[] {
  if (!Array.isArray(id)) return [valuesOf(table, id)];
  if (id.length === 0 || id.length > MOST_ROWS) {
    throw new KeyProblem(`expected 1 to ${MOST_ROWS} keys of ${table.name}, got ${id.length}`);
  }
  const keys = id.map((each: unknown) => valuesOf(table, each));
  return [...new Map(keys.map((values) => [JSON.stringify(values.map(String)), values])).values()];
}

function valuesOf({ key, name }: Table, id: unknown): KeyValues {
  const columns = key.map(({ property }) => property);
  if (isKeyPart(id)) {
    if (columns.length === 1) return [id];
    throw new KeyProblem(
      `expected an object of ${columns.join(', ')} for ${name}, got ${show(id)}`,
    );
  }
  if (typeof id !== 'object' || id === null || Array.isArray(id)) {
    throw new KeyProblem(`expected a key of ${name}, got ${show(id)}`);
  }
  const names = Object.keys(id);
  const fits =
    names.length === columns.length && columns.every((column) => Object.hasOwn(id, column));
  if (!fits) {
    throw new KeyProblem(
      `expected an object of ${columns.join(', ')} for ${name}, got one of ${names.join(', ') || 'nothing'}`,
    );
  }
  return columns.map((column) => {
    const value = (id as Readonly<Record<string, unknown>>)[column];
    if (isKeyPart(value)) return value;
    throw new KeyProblem(`expected a string, number or bigint as ${column}, got ${show(value)}`);
  });
}

/** The database keeps no NUL in a text. */
function isKeyPart(value: unknown): value is KeyPart {
  if (typeof value === 'string') return value !== '' && !value.includes('\0');
  return typeof value === 'bigint' || (typeof value === 'number' && Number.isFinite(value));
}
