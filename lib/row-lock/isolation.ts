import { DefinitionError, show } from '../errors/definition.error.js';

const LEVELS = ['read committed', 'repeatable read', 'serializable'] as const;

/** What a transaction sees of others (SQL-92; PostgreSQL 13.2). */
export type IsolationLevel = (typeof LEVELS)[number];

/** How transactions are begun. */
export interface IsolationOptions {
  /**
   * Default: the database's own, usually `read committed`. Above it a row that was changed while it
   * was waited for is a `RowLockConflictError`.
   */
  readonly isolationLevel?: IsolationLevel;
}

/** @throws DefinitionError for a level that Postgres does not have */
export function checkIsolation(
  level: IsolationLevel | undefined,
  site: string,
): IsolationLevel | undefined {
  if (level === undefined || LEVELS.includes(level)) return level;
  throw new DefinitionError(
    `${site} option "isolationLevel": expected one of ${LEVELS.join(', ')}, got ${show(level)}`,
  );
}
