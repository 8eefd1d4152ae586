import { DefinitionError, show } from '../errors/definition.error.js';
import { checkIsolation, type IsolationLevel, type IsolationOptions } from './isolation.js';
import { readStatement } from './lock-statement.js';
import type { KeyValues } from './row-key.js';
import {
  type EntityTarget,
  isEntity,
  isModel,
  makeTable,
  namedTable,
  type RowTarget,
  type Table,
} from './target.js';
import { TransactionScope } from './transaction-scope.js';
import { type Row, Transactions } from './transactions.js';

/** What is needed of an `EntityManager` of TypeORM. */
export interface TypeOrmManager {
  query(sql: string, values?: unknown[]): Promise<unknown>;
  find(entity: EntityTarget, options: { where: object[] }): Promise<Row[]>;
  readonly connection: TypeOrmDataSource;
}

/** What is needed of a `QueryRunner` of TypeORM: one connection. */
export interface TypeOrmQueryRunner {
  readonly manager: TypeOrmManager;
  /** @returns the client of `pg` */
  connect(): Promise<unknown>;
  startTransaction(isolationLevel?: never): Promise<void>;
  commitTransaction(): Promise<void>;
  rollbackTransaction(): Promise<void>;
  release(): Promise<void>;
}

/** What is needed of a `DataSource` of TypeORM. */
export interface TypeOrmDataSource {
  createQueryRunner(): TypeOrmQueryRunner;
  hasMetadata(entity: EntityTarget): boolean;
  getMetadata(entity: EntityTarget): {
    readonly tableName: string;
    readonly schema?: string | undefined;
    readonly primaryColumns: readonly {
      readonly databaseName: string;
      readonly propertyName: string;
    }[];
  };
  readonly options: { readonly type: string };
  readonly isInitialized: boolean;
}

/**
 * Transactions of TypeORM. What runs inside asks `currentTransaction<EntityManager>()` for its
 * manager: a repository that is injected is outside.
 */
export class TypeOrmTransactions extends Transactions<TypeOrmManager> {
  readonly #scope = new TransactionScope<TypeOrmManager>();
  readonly #dataSource: TypeOrmDataSource;
  readonly #level: IsolationLevel | undefined;

  /** @throws DefinitionError unless `dataSource` is one of Postgres */
  constructor({
    dataSource,
    isolationLevel,
  }: { readonly dataSource: TypeOrmDataSource } & IsolationOptions) {
    super();
    const site = 'new TypeOrmTransactions()';
    const { createQueryRunner, getMetadata } = (dataSource ?? {}) as Partial<TypeOrmDataSource>;
    if (typeof createQueryRunner !== 'function' || typeof getMetadata !== 'function') {
      throw new DefinitionError(
        `${site}: expected a DataSource of TypeORM, got ${show(dataSource)}`,
      );
    }
    if (dataSource.options.type !== 'postgres') {
      throw new DefinitionError(
        `${site}: expected a DataSource of type 'postgres', got ${show(dataSource.options.type)}`,
      );
    }
    this.#dataSource = dataSource;
    this.#level = checkIsolation(isolationLevel, site);
  }

  run<T>(body: () => Promise<T>): Promise<T> {
    const level = this.#level?.toUpperCase() as never;
    return this.#scope.open(body, async (inside) => {
      const runner = this.#dataSource.createQueryRunner();
      try {
        await runner.startTransaction(level);
        const value = await inside(runner.manager);
        await runner.commitTransaction();
        return value;
      } catch (error) {
        await rollBack(runner);
        throw error;
      } finally {
        await runner.release();
      }
    });
  }

  current(): TypeOrmManager | undefined {
    return this.#scope.current();
  }

  query(tx: TypeOrmManager, sql: string, values: readonly unknown[]): Promise<readonly Row[]> {
    return queryTypeOrm(tx, sql, values);
  }

  override get knowsTables(): boolean {
    return this.#dataSource.isInitialized;
  }

  override tableOf(target: RowTarget, site: string): Table {
    return typeOrmTable(this.#dataSource, target, site);
  }

  override load(
    tx: TypeOrmManager,
    target: RowTarget,
    table: Table,
    keys: readonly KeyValues[],
  ): Promise<readonly Row[]> {
    return loadTypeOrm(tx, target, table, keys);
  }
}

/**
 * A connection that does not answer to ROLLBACK is ended: from the pool it would come back with this
 * transaction open, and what was done in it would be saved by the next one.
 */
async function rollBack(runner: TypeOrmQueryRunner): Promise<void> {
  try {
    await runner.rollbackTransaction();
  } catch {
    const client = (await runner.connect().catch(() => undefined)) as
      { end(done: () => void): void } | undefined;
    client?.end(() => undefined);
  }
}

/** Some statements answer no rows. */
export async function queryTypeOrm(
  tx: TypeOrmManager,
  sql: string,
  values: readonly unknown[],
): Promise<readonly Row[]> {
  const rows = await tx.query(sql, [...values]);
  return Array.isArray(rows) ? (rows as Row[]) : [];
}

/** @throws DefinitionError for an entity that the data source does not know */
export function typeOrmTable(
  dataSource: TypeOrmDataSource,
  target: RowTarget,
  site: string,
): Table {
  if (isModel(target)) {
    throw new DefinitionError(
      `${site}: expected a table or an entity, got ${show(target)}; TypeORM has no models`,
    );
  }
  if (!isEntity(target)) return namedTable(target, site);
  if (!dataSource.hasMetadata(target)) {
    throw new DefinitionError(
      `${site}: expected an entity of the data source, got ${show(target)}`,
    );
  }
  const { tableName, schema, primaryColumns } = dataSource.getMetadata(target);
  return makeTable(
    schema ? [schema, tableName] : [tableName],
    primaryColumns.map(({ databaseName, propertyName }) => ({
      column: databaseName,
      property: propertyName,
    })),
    site,
  );
}

export function loadTypeOrm(
  tx: TypeOrmManager,
  target: RowTarget,
  table: Table,
  keys: readonly KeyValues[],
): Promise<readonly Row[]> {
  if (!isEntity(target)) {
    const { sql, values } = readStatement(table, keys);
    return queryTypeOrm(tx, sql, values);
  }
  const where = keys.map((key) =>
    Object.fromEntries(table.key.map(({ property }, position) => [property, key[position]])),
  );
  return tx.find(target, { where });
}
