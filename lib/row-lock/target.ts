import { DefinitionError, show } from '../errors/definition.error.js';
import type { KeyPart } from './row-key.js';

/** A table by its name and the columns of its primary key. */
export interface TableTarget {
  /** As it is written in the database, upper and lower case included; `'schema.table'` names a schema. */
  readonly table: string;
  /** Its key column, or the columns of a composite key in order. Default `'id'`. */
  readonly key?: string | readonly string[];
}

/** A model of Prisma, by the name it has in the schema. */
export interface ModelTarget {
  readonly model: string;
  /** The field of its `@id`, or the fields of its `@@id` in order. Default `'id'`. */
  readonly key?: string | readonly string[];
}

/** A class that the database library knows, such as an entity of TypeORM. */
export type EntityTarget<R extends object = object> = abstract new (...args: never[]) => R;

/**
 * Whose rows are locked: a table (`'invoices'`, `'billing.invoices'`, key column `id`), a table with
 * its key, or the entity or model of the database library.
 */
export type RowTarget<R extends object = object> =
  string | TableTarget | ModelTarget | EntityTarget<R>;

/** One column of a key. */
export interface KeyColumn {
  readonly column: string;
  /** What the column is called in objects of the database library. */
  readonly property: string;
  /** Makes of a value what the library wants in its own queries; it is one that the column holds. */
  readonly cast?: (value: KeyPart) => unknown;
}

/** A table as it is locked. */
export interface Table {
  /** Schema and table, for messages and events. */
  readonly name: string;
  /** The quoted name. */
  readonly sql: string;
  readonly key: readonly KeyColumn[];
}

/** The longest name that Postgres keeps apart from others, in bytes. */
const LONGEST_NAME_BYTES = 63;

/**
 * A name as SQL. Never part of a statement in any other way.
 *
 * @throws DefinitionError for what can be no name
 */
export function quoteName(name: unknown, site: string): string {
  const sound =
    typeof name === 'string' &&
    name !== '' &&
    !name.includes('\0') &&
    Buffer.byteLength(name) <= LONGEST_NAME_BYTES;
  if (sound) return `"${name.replaceAll('"', '""')}"`;
  throw new DefinitionError(`${site}: expected the name of a table or column, got ${show(name)}`);
}

/** @throws DefinitionError for a name that can be none, or a key without columns */
export function makeTable(
  parts: readonly string[],
  key: readonly KeyColumn[],
  site: string,
): Table {
  if (key.length === 0) throw new DefinitionError(`${site}: expected a primary key, got none`);
  for (const { column } of key) quoteName(column, site);
  if (new Set(key.map(({ column }) => column)).size < key.length) {
    throw new DefinitionError(`${site}: expected different key columns, got ${show(key)}`);
  }
  return Object.freeze({
    name: parts.join('.'),
    sql: parts.map((part) => quoteName(part, site)).join('.'),
    key: Object.freeze([...key]),
  });
}

/**
 * A table that is named, not looked up in a database library.
 *
 * @throws DefinitionError for what is no table and no key
 */
export function namedTable(target: string | TableTarget, site: string): Table {
  const { table, key = 'id' } = typeof target === 'string' ? { table: target } : target;
  const parts = typeof table === 'string' ? table.split('.') : [];
  if (parts.length < 1 || parts.length > 2) {
    throw new DefinitionError(`${site}: expected 'table' or 'schema.table', got ${show(table)}`);
  }
  const columns = namesOf(key, site).map((column) => ({ column, property: column }));
  return makeTable(parts, columns, site);
}

/** One name, or several. @throws DefinitionError for anything else */
export function namesOf(key: unknown, site: string): readonly string[] {
  const names: unknown = typeof key === 'string' ? [key] : key;
  if (Array.isArray(names) && names.every((name) => typeof name === 'string')) return names;
  throw new DefinitionError(`${site} option "key": expected names, got ${show(key)}`);
}

/** Whether a value is written in one of the forms of a target. */
export function isRowTarget(value: unknown): value is RowTarget {
  if (typeof value === 'string') return true;
  if (typeof value === 'function') return isEntity(value);
  if (typeof value !== 'object' || value === null) return false;
  const { table, model } = value as { table?: unknown; model?: unknown };
  const names = Object.keys(value).filter((name) => name !== 'key');
  return names.length === 1 && (typeof table === 'string' || typeof model === 'string');
}

export function isEntity(value: unknown): value is EntityTarget {
  return typeof value === 'function' && typeof value.prototype === 'object';
}

export function isModel(target: RowTarget): target is ModelTarget {
  return typeof target === 'object' && 'model' in target;
}
