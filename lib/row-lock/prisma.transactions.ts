import { type Duration, toMilliseconds } from '../clock/duration.js';
import { DefinitionError, show } from '../errors/definition.error.js';
import { checkIsolation, type IsolationLevel, type IsolationOptions } from './isolation.js';
import { readStatement } from './lock-statement.js';
import type { KeyPart, KeyValues } from './row-key.js';
import {
  isEntity,
  isModel,
  makeTable,
  namedTable,
  namesOf,
  type RowTarget,
  type Table,
} from './target.js';
import { TransactionScope } from './transaction-scope.js';
import { type Row, Transactions } from './transactions.js';

/** What is needed of a transaction client of Prisma. */
export interface PrismaTransaction {
  $queryRawUnsafe(sql: string, ...values: unknown[]): Promise<unknown>;
  $executeRawUnsafe(sql: string, ...values: unknown[]): Promise<number>;
}

/** What is needed of a client of Prisma. */
export interface PrismaClientLike extends PrismaTransaction {
  /** Called with a body and options. Its real type has overloads, which only this shape admits. */
  $transaction(...args: never[]): Promise<unknown>;
}

export interface PrismaTransactionOptions extends IsolationOptions {
  /** How long a transaction may take before Prisma ends it. Default 60 s (Prisma's own is 5 s). */
  readonly timeout?: Duration;
  /** How long Prisma waits for a connection. Default 5 s. */
  readonly maxWait?: Duration;
}

/** What Prisma calls them. */
const LEVELS: Readonly<Record<IsolationLevel, string>> = {
  'read committed': 'ReadCommitted',
  'repeatable read': 'RepeatableRead',
  serializable: 'Serializable',
};

/** Where a client of Prisma keeps what it knows of its models; no part of its public interface. */
const RUNTIME_MODELS = '_runtimeDataModel';

/** What Prisma knows of a model. */
interface RuntimeModel {
  readonly dbName?: string | null;
  readonly schema?: string | null;
  readonly fields: readonly {
    readonly name: string;
    readonly dbName?: string | null;
    readonly type: string;
  }[];
}

/** Of the types of a field, what Prisma's own queries want: a number of a path is a text. */
const CASTS: Readonly<Record<string, (value: KeyPart) => unknown>> = {
  Int: Number,
  BigInt,
  Float: Number,
  Decimal: String,
  String,
  DateTime: (value) => new Date(String(value)),
};

/**
 * Transactions of Prisma 7 with a driver adapter for Postgres. What runs inside asks
 * `currentTransaction<Prisma.TransactionClient>()` for its client.
 */
export class PrismaTransactions extends Transactions<PrismaTransaction> {
  readonly #scope = new TransactionScope<PrismaTransaction>();
  readonly #client: PrismaClientLike;
  readonly #options: {
    readonly timeout: number;
    readonly maxWait: number;
    readonly isolationLevel?: string;
  };

  /** @throws DefinitionError unless `client` is a client of Prisma */
  constructor({
    client,
    timeout = 60,
    maxWait = 5,
    isolationLevel,
  }: { readonly client: PrismaClientLike } & PrismaTransactionOptions) {
    super();
    const site = 'new PrismaTransactions()';
    if (typeof (client as Partial<PrismaClientLike> | undefined)?.$transaction !== 'function') {
      throw new DefinitionError(`${site}: expected a client of Prisma, got ${show(client)}`);
    }
    this.#client = client;
    const level = checkIsolation(isolationLevel, site);
    this.#options = {
      timeout: toMilliseconds(timeout, `${site} option "timeout"`),
      maxWait: toMilliseconds(maxWait, `${site} option "maxWait"`),
      ...(level && { isolationLevel: LEVELS[level] }),
    };
  }

  run<T>(body: () => Promise<T>): Promise<T> {
    return this.#scope.open(body, (inside) =>
      this.#client.$transaction(...([inside, this.#options] as never[])),
    );
  }

  current(): PrismaTransaction | undefined {
    return this.#scope.current();
  }

  query(tx: PrismaTransaction, sql: string, values: readonly unknown[]): Promise<readonly Row[]> {
    return queryPrisma(tx, sql, values);
  }

  override tableOf(target: RowTarget, site: string): Table {
    return prismaTable(this.#client, target, site);
  }

  override load(
    tx: PrismaTransaction,
    target: RowTarget,
    table: Table,
    keys: readonly KeyValues[],
  ): Promise<readonly Row[]> {
    return loadPrisma(tx, target, table, keys);
  }
}

/** A statement without rows is none that Prisma queries. */
export async function queryPrisma(
  tx: PrismaTransaction,
  sql: string,
  values: readonly unknown[],
): Promise<readonly Row[]> {
  if (!/^\s*(?:SELECT|WITH)\b/i.test(sql)) {
    await tx.$executeRawUnsafe(sql, ...values);
    return [];
  }
  return (await tx.$queryRawUnsafe(sql, ...values)) as readonly Row[];
}

/** @throws DefinitionError for a model that the client does not have */
export function prismaTable(client: object, target: RowTarget, site: string): Table {
  if (isEntity(target)) {
    throw new DefinitionError(
      `${site}: expected a table or { model }, got ${show(target)}; Prisma has no entity classes`,
    );
  }
  if (!isModel(target)) return namedTable(target, site);
  const { models = {} } = (Reflect.get(client, RUNTIME_MODELS) ?? {}) as {
    readonly models?: Readonly<Record<string, RuntimeModel>>;
  };
  const model = Object.hasOwn(models, target.model) ? models[target.model] : undefined;
  if (!model) {
    const known = Object.keys(models).join(', ') || 'none that can be read from the client';
    throw new DefinitionError(
      `${site}: expected one of the models (${known}), got ${show(target.model)}; a table works too: { table: 'invoices', key: 'id' }`,
    );
  }
  const columns = namesOf(target.key ?? 'id', site).map((property) => {
    const field = model.fields.find(({ name }) => name === property);
    if (field) {
      return { property, column: field.dbName ?? property, cast: CASTS[field.type] ?? String };
    }
    const fields = model.fields.map(({ name }) => name).join(', ');
    throw new DefinitionError(
      `${site} option "key": expected a field of ${target.model} (${fields}), got ${show(property)}`,
    );
  });
  const table = model.dbName ?? target.model;
  return makeTable(model.schema ? [model.schema, table] : [table], columns, site);
}

export async function loadPrisma(
  tx: PrismaTransaction,
  target: RowTarget,
  table: Table,
  keys: readonly KeyValues[],
): Promise<readonly Row[]> {
  if (!isModel(target)) {
    const { sql, values } = readStatement(table, keys);
    return queryPrisma(tx, sql, values);
  }
  const { model } = target;
  const delegate = (tx as unknown as Readonly<Record<string, PrismaDelegate>>)[
    model.charAt(0).toLowerCase() + model.slice(1)
  ] as PrismaDelegate;
  const where = keys.map((key) =>
    Object.fromEntries(
      table.key.map(({ property, cast = String }, position) => [
        property,
        cast(key[position] as KeyPart),
      ]),
    ),
  );
  return delegate.findMany({ where: { OR: where } });
}

interface PrismaDelegate {
  findMany(query: { readonly where: object }): Promise<Row[]>;
}
