import { DefinitionError, show } from '../errors/definition.error.js';
import {
  loadPrisma,
  type PrismaTransaction,
  prismaTable,
  queryPrisma,
} from './prisma.transactions.js';
import type { KeyValues } from './row-key.js';
import type { RowTarget, Table } from './target.js';
import { type Row, Transactions } from './transactions.js';
import {
  loadTypeOrm,
  queryTypeOrm,
  type TypeOrmManager,
  typeOrmTable,
} from './typeorm.transactions.js';

/** What is needed of a `TransactionHost` of `@nestjs-cls/transactional`. */
export interface ClsTransactionHost {
  readonly tx: unknown;
  isTransactionActive(): boolean;
  withTransaction<T>(body: () => Promise<T>): Promise<T>;
}

/**
 * Transactions of `@nestjs-cls/transactional`, whose `@Transactional()` and ours then are one: each
 * joins what the other has opened. It works over its adapters for TypeORM and Prisma, and over any
 * whose handle is a client of `pg`.
 */
export class ClsTransactions extends Transactions {
  readonly #host: ClsTransactionHost;

  /** @throws DefinitionError unless it is a `TransactionHost` */
  constructor(host: ClsTransactionHost) {
    super();
    if (typeof (host as Partial<ClsTransactionHost> | undefined)?.withTransaction !== 'function') {
      throw new DefinitionError(
        `new ClsTransactions(): expected a TransactionHost of @nestjs-cls/transactional, got ${show(host)}`,
      );
    }
    this.#host = host;
  }

  run<T>(body: () => Promise<T>): Promise<T> {
    return this.#host.withTransaction(body);
  }

  current(): unknown {
    return this.#host.isTransactionActive() ? this.#host.tx : undefined;
  }

  query(tx: unknown, sql: string, values: readonly unknown[]): Promise<readonly Row[]> {
    if (isPrisma(tx)) return queryPrisma(tx, sql, values);
    if (isTypeOrm(tx)) return queryTypeOrm(tx, sql, values);
    return queryPg(tx, sql, values);
  }

  /** Its handle is there once the application has been started. */
  override get knowsTables(): boolean {
    return false;
  }

  /** Outside a transaction the host's handle is that of the whole database, which knows the models as well. */
  override tableOf(target: RowTarget, site: string): Table {
    const handle = this.#host.tx;
    if (isPrisma(handle)) return prismaTable(handle, target, site);
    if (isTypeOrm(handle)) return typeOrmTable(handle.connection, target, site);
    return super.tableOf(target, site);
  }

  override load(
    tx: unknown,
    target: RowTarget,
    table: Table,
    keys: readonly KeyValues[],
  ): Promise<readonly Row[]> {
    if (isPrisma(tx)) return loadPrisma(tx, target, table, keys);
    if (isTypeOrm(tx)) return loadTypeOrm(tx, target, table, keys);
    return super.load(tx, target, table, keys);
  }
}

function isPrisma(handle: unknown): handle is PrismaTransaction {
  return typeof (handle as Partial<PrismaTransaction> | null)?.$queryRawUnsafe === 'function';
}

function isTypeOrm(handle: unknown): handle is TypeOrmManager {
  const manager = handle as Partial<TypeOrmManager> | null;
  return typeof manager?.find === 'function' && typeof manager.query === 'function';
}

async function queryPg(
  tx: unknown,
  sql: string,
  values: readonly unknown[],
): Promise<readonly Row[]> {
  const { query } = tx as { query?: unknown };
  if (typeof query !== 'function') {
    throw new DefinitionError(
      'ClsTransactions: expected a handle of TypeORM, Prisma or pg, got another; write a class of your own on Transactions',
    );
  }
  const { rows } = (await query.call(tx, sql, [...values])) as { readonly rows: Row[] };
  return rows;
}
