import { DefinitionError, show } from '../errors/definition.error.js';
import { readStatement } from './lock-statement.js';
import type { KeyValues } from './row-key.js';
import { isEntity, isModel, namedTable, type RowTarget, type Table } from './target.js';

/** A row as the database library answers it. */
export type Row = object;

/**
 * What row locks need of a database library: its transactions, and a way to ask inside them. One
 * class per library; an application may write its own.
 */
export abstract class Transactions<Tx = unknown> {
  /**
   * Whether {@link run} throws when its COMMIT is answered with a ROLLBACK, as it is where a statement
   * has failed and the body has caught that. Where it does not, the database is asked before each COMMIT.
   */
  readonly noticesRollback: boolean = false;

  /**
   * Opens a transaction of its own, runs the body in it, and commits; if the body throws, rolls back
   * and throws the same error.
   */
  abstract run<T>(body: () => Promise<T>): Promise<T>;

  /** The library's handle of the transaction that is open here; `undefined` outside one. */
  abstract current(): Tx | undefined;

  /** Asks inside that transaction. Values stand as `$1`, `$2`, ... */
  abstract query(tx: Tx, sql: string, values: readonly unknown[]): Promise<readonly Row[]>;

  /**
   * The table of a target. A library that has entities or models of its own tells theirs.
   *
   * @param site names class and method in errors
   * @throws DefinitionError for a target that the library does not know
   */
  tableOf(target: RowTarget, site: string): Table {
    if (isEntity(target) || isModel(target)) {
      throw new DefinitionError(
        `${site}: expected a table, got ${show(target)}; ${this.constructor.name} knows no entities and models`,
      );
    }
    return namedTable(target, site);
  }

  /**
   * Whether {@link tableOf} can answer already, so that an application asks at boot; it may not be
   * connected by then.
   */
  get knowsTables(): boolean {
    return true;
  }

  /**
   * Reads rows past any cache: the columns as they are, or as the library maps its entities.
   *
   * @returns in any order
   */
  load(
    tx: Tx,
    _target: RowTarget,
    table: Table,
    keys: readonly KeyValues[],
  ): Promise<readonly Row[]> {
    const { sql, values } = readStatement(table, keys);
    return this.query(tx, sql, values);
  }
}
