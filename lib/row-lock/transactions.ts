import type { KeyValues } from './row-key.js';
import type { RowTarget, Table } from './target.js';

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
   * The table of a target.
   *
   * @param site names class and method in errors
   * @throws DefinitionError for a target that the library does not know
   */
  abstract tableOf(target: RowTarget, site: string): Table;

  /**
   * Whether {@link tableOf} can answer already, so that an application asks at boot; it may not be
   * connected by then.
   */
  get knowsTables(): boolean {
    return true;
  }

  /**
   * Reads rows as the library maps them, past any cache.
   *
   * @returns in any order; `keyOf` tells whose they are
   */
  abstract load(
    tx: Tx,
    target: RowTarget,
    table: Table,
    keys: readonly KeyValues[],
  ): Promise<readonly Row[]>;
}
