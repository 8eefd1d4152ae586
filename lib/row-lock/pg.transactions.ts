import { DefinitionError, show } from '../errors/definition.error.js';
import { TransactionAbortedError } from '../errors/transaction-aborted.error.js';
import { outside } from '../process-wide.js';
import { checkIsolation, type IsolationOptions } from './isolation.js';
import { TransactionScope } from './transaction-scope.js';
import { type Row, Transactions } from './transactions.js';

/** What is needed of a `PoolClient` of `pg`. */
export interface PgClient {
  query(
    sql: string,
    values?: unknown[],
  ): Promise<{ readonly rows: Row[]; readonly command: string }>;
  release(error?: Error | boolean): void;
  on(event: 'error', listener: (error: Error) => void): unknown;
  removeListener(event: 'error', listener: (error: Error) => void): unknown;
}

/** What is needed of a `Pool` of `pg`. */
export interface PgPool {
  connect(): Promise<PgClient>;
}

/**
 * Transactions of plain `pg`: one client of the pool each, found again by the async context. What
 * runs inside asks `currentTransaction<PoolClient>()` for it.
 */
export class PgTransactions<Client extends PgClient = PgClient> extends Transactions<Client> {
  override readonly noticesRollback = true;
  readonly #scope = new TransactionScope<Client>();
  readonly #pool: PgPool;
  readonly #begin: string;

  /** @throws DefinitionError unless `pool` is a pool, and the isolation level one of Postgres */
  constructor({ pool, isolationLevel }: { readonly pool: PgPool } & IsolationOptions) {
    super();
    const site = 'new PgTransactions()';
    if (typeof (pool as Partial<PgPool> | undefined)?.connect !== 'function') {
      throw new DefinitionError(`${site}: expected a Pool of pg, got ${show(pool)}`);
    }
    this.#pool = pool;
    const level = checkIsolation(isolationLevel, site);
    this.#begin = level ? `BEGIN ISOLATION LEVEL ${level}` : 'BEGIN';
  }

  async run<T>(body: () => Promise<T>): Promise<T> {
    const client = (await outside(() => this.#pool.connect())) as Client;
    let broken: Error | undefined;
    // A connection that is lost between two statements says so here, or else ends the process.
    const onError = (error: Error): void => void (broken = error);
    client.on('error', onError);
    try {
      await client.query(this.#begin);
      const value = await this.#scope.run(client, body);
      if (broken) throw new TransactionAbortedError(broken, 'its connection was lost');
      const { command } = await client.query('COMMIT');
      if (command === 'ROLLBACK') throw new TransactionAbortedError();
      return value;
    } catch (error) {
      broken ??= await client.query('ROLLBACK').then(
        () => undefined,
        (lost: Error) => lost,
      );
      throw error;
    } finally {
      client.removeListener('error', onError);
      client.release(broken);
    }
  }

  current(): Client | undefined {
    return this.#scope.current();
  }

  async query(tx: Client, sql: string, values: readonly unknown[]): Promise<readonly Row[]> {
    const { rows } = await tx.query(sql, [...values]);
    return rows;
  }
}
