import type { RowLockMode } from '../policies/options.js';
import type { KeyValues } from './row-key.js';
import { quoteName, type Table } from './target.js';

const STRENGTH: Readonly<Record<RowLockMode, string>> = {
  update: 'FOR UPDATE',
  'no key update': 'FOR NO KEY UPDATE',
  share: 'FOR SHARE',
  'key share': 'FOR KEY SHARE',
};

/** What to do about a row that is locked: give up, leave it out, or wait so many milliseconds. */
export type Patience = 'nowait' | 'skip locked' | number;

/** A statement with its values apart. */
export interface Statement {
  readonly sql: string;
  readonly values: readonly unknown[];
}

/** The longest `lock_timeout` that Postgres takes, in milliseconds. */
const LONGEST_WAIT_MS = 2_147_483_647;

/**
 * Locks rows by their primary key, in key order, so that two callers who want the same rows never
 * wait for each other crosswise. Reads nothing but the key: no join, no column that a library would
 * have to map.
 *
 * @returns a statement that answers one row per locked row; with a bounded wait, one row with their
 *   number as `locked`. The wait is bounded by `lock_timeout` within the statement alone: what the
 *   transaction had before is restored when the rows are locked.
 */
export function lockStatement(
  table: Table,
  keys: readonly KeyValues[],
  mode: RowLockMode,
  patience: Patience,
): Statement {
  const columns = table.key.map(({ column }) => `t.${quoteName(column, table.name)}`).join(', ');
  const values: unknown[] = typeof patience === 'number' ? [bounded(patience)] : [];
  const wanted = condition(columns, keys, values);
  const order = `ORDER BY ${columns} ${STRENGTH[mode]} OF t`;
  if (typeof patience !== 'number') {
    const how = patience === 'nowait' ? 'NOWAIT' : 'SKIP LOCKED';
    return { sql: `SELECT ${columns} FROM ${table.sql} t WHERE ${wanted} ${order} ${how}`, values };
  }
  return {
    sql:
      "WITH bound AS MATERIALIZED (SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $1, true)), " +
      `locked AS MATERIALIZED (SELECT ${columns} FROM bound CROSS JOIN ${table.sql} t WHERE ${wanted} ${order}) ` +
      "SELECT count(*)::int AS locked, set_config('lock_timeout', (SELECT before FROM bound), true) AS restored FROM locked",
    values,
  };
}

/** Reads whole rows by their primary key. */
export function readStatement(table: Table, keys: readonly KeyValues[]): Statement {
  const columns = table.key.map(({ column }) => `t.${quoteName(column, table.name)}`).join(', ');
  const values: unknown[] = [];
  const wanted = condition(columns, keys, values);
  return { sql: `SELECT t.* FROM ${table.sql} t WHERE ${wanted} ORDER BY ${columns}`, values };
}

/** Adds the values of the keys to `values`. */
function condition(columns: string, keys: readonly KeyValues[], values: unknown[]): string {
  const rows = keys.map((key) => {
    const places = key.map((value) => {
      // A bigint is no number to every driver; as a text it is one to the database.
      values.push(typeof value === 'bigint' ? String(value) : value);
      return `$${values.length}`;
    });
    return `(${places.join(', ')})`;
  });
  return `(${columns}) IN (${rows.join(', ')})`;
}

function bounded(ms: number): string {
  return `${Math.min(Math.max(1, Math.ceil(ms)), LONGEST_WAIT_MS)}ms`;
}
