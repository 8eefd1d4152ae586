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

/** What {@link lockStatement} calls the columns of the key. */
export const keyAlias = (column: number): string => `k${column}`;

/**
 * Locks rows by their primary key, in key order, so that two callers who want the same rows never
 * wait for each other crosswise. Reads nothing but the key: no join, no column that a library would
 * have to map.
 *
 * @returns a statement that answers, for each locked row, its key as the database has it ({@link keyAlias})
 *   and as `place` the position of the key that asked for it. With a bounded wait a row without `place`
 *   may be among them. The wait is bounded by `lock_timeout` within the statement alone: what the
 *   transaction had before is restored when the rows are locked.
 */
export function lockStatement(
  table: Table,
  keys: readonly KeyValues[],
  mode: RowLockMode,
  patience: Patience,
): Statement {
  const values: unknown[] = typeof patience === 'number' ? [bounded(patience)] : [];
  const columns = columnsOf(table);
  const key = columns.map((column, position) => `${column} AS ${keyAlias(position)}`).join(', ');
  const wanted = placesOf(keys, values);
  const ordered = columns.join(', ');
  const place = `CASE ${wanted.map((each, position) => `WHEN (${ordered}) = ${each} THEN ${position}`).join(' ')} END AS place`;
  const rows = `SELECT ${key}, ${place} FROM`;
  const locked = `WHERE (${ordered}) IN (${wanted.join(', ')}) ORDER BY ${ordered} ${STRENGTH[mode]} OF t`;
  if (typeof patience !== 'number') {
    const how = patience === 'nowait' ? 'NOWAIT' : 'SKIP LOCKED';
    return { sql: `${rows} ${table.sql} t ${locked} ${how}`, values };
  }
  return {
    sql:
      "WITH bound AS MATERIALIZED (SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $1, true)), " +
      `locked AS MATERIALIZED (${rows} bound CROSS JOIN ${table.sql} t ${locked}), ` +
      // Counted, so that all are locked before it is restored; joined, so that it is where none is found.
      "restored AS MATERIALIZED (SELECT set_config('lock_timeout', before, true) AS bound_before FROM bound CROSS JOIN (SELECT count(*) FROM locked) AS done) " +
      'SELECT locked.*, bound_before FROM restored LEFT JOIN locked ON true',
    values,
  };
}

/** Reads whole rows by their primary key. */
export function readStatement(table: Table, keys: readonly KeyValues[]): Statement {
  const values: unknown[] = [];
  const columns = columnsOf(table).join(', ');
  const wanted = placesOf(keys, values).join(', ');
  return {
    sql: `SELECT t.* FROM ${table.sql} t WHERE (${columns}) IN (${wanted}) ORDER BY ${columns}`,
    values,
  };
}

function columnsOf(table: Table): readonly string[] {
  return table.key.map(({ column }) => `t.${quoteName(column, table.name)}`);
}

/** Adds the values of the keys to `values`. @returns where they stand, one per key */
function placesOf(keys: readonly KeyValues[], values: unknown[]): readonly string[] {
  return keys.map((key) => {
    const places = key.map((value) => {
      // A bigint is no number to every driver; as a text it is one to the database.
      values.push(typeof value === 'bigint' ? String(value) : value);
      return `$${values.length}`;
    });
    return `(${places.join(', ')})`;
  });
}

function bounded(ms: number): string {
  return `${Math.min(Math.max(1, Math.ceil(ms)), LONGEST_WAIT_MS)}ms`;
}
