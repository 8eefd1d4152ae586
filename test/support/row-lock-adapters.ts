import 'reflect-metadata';
import { currentTransaction, type RowTarget } from 'nestjs-cmdx';
import {
  type IsolationOptions,
  PgTransactions,
  PrismaTransactions,
  type Transactions,
  TypeOrmTransactions,
} from 'nestjs-cmdx/row-lock';
import { Pool, type PoolClient, type PoolConfig } from 'pg';
import { Column, DataSource, Entity, type EntityManager, PrimaryColumn } from 'typeorm';
import { openPrisma, type PrismaTransactionClient } from './prisma-client.js';

@Entity('invoices')
export class InvoiceEntity {
  @PrimaryColumn('int', { name: 'invoice_no' })
  id!: number;

  @Column('int', { name: 'amount_cents' })
  amountCents!: number;

  @Column('text', { name: 'invoice_status' })
  status!: string;
}

@Entity('Booked Seats', { schema: 'billing' })
export class SeatEntity {
  @PrimaryColumn('text', { name: 'Flight No' })
  flight!: string;

  @PrimaryColumn('int', { name: 'select' })
  number!: number;

  @Column('text', { name: 'Holder', nullable: true })
  holder!: string | null;
}

@Entity('payments')
export class PaymentEntity {
  @PrimaryColumn('uuid', { name: 'payment_id' })
  id!: string;

  @Column('int', { name: 'amount_cents' })
  amountCents!: number;
}

/** What a database library calls the same tables. */
export interface LibraryTargets {
  readonly invoices: RowTarget;
  readonly seats: RowTarget;
  readonly payments: RowTarget;
  /** How a row of the invoices tells its status and amount, a seat its holder; how a key of the seats is written. */
  readonly status: (row: object) => unknown;
  readonly amount: (row: object) => unknown;
  readonly holder: (row: object) => unknown;
  readonly seat: (flight: string, number: number) => Readonly<Record<string, string | number>>;
}

/** One way to lock rows. */
export interface RowLockAdapter extends LibraryTargets {
  readonly transactions: Transactions;
  /** The library itself: a pool, a data source, a client. */
  readonly library: object;
  /** Runs a body in a transaction that is not ours, where the library has a way that ours joins. */
  readonly within?: <T>(body: () => Promise<T>) => Promise<T>;
  /** Asks in the transaction that is open here. */
  readonly ask: (sql: string) => Promise<unknown>;
  close(): Promise<void>;
}

const COLUMNS: LibraryTargets = {
  invoices: { table: 'invoices', key: 'invoice_no' },
  seats: { table: 'billing.Booked Seats', key: ['Flight No', 'select'] },
  payments: { table: 'payments', key: 'payment_id' },
  status: (row) => (row as { invoice_status: string }).invoice_status,
  amount: (row) => (row as { amount_cents: number }).amount_cents,
  holder: (row) => (row as { Holder: string }).Holder,
  seat: (flight, number) => ({ 'Flight No': flight, select: number }),
};
const PROPERTIES = {
  status: (row: object) => (row as { status: string }).status,
  amount: (row: object) => (row as { amountCents: number }).amountCents,
  holder: (row: object) => (row as { holder: string }).holder,
  seat: (flight: string, number: number) => ({ flight, number }),
};
const ENTITIES: LibraryTargets = {
  invoices: InvoiceEntity,
  seats: SeatEntity,
  payments: PaymentEntity,
  ...PROPERTIES,
};
const MODELS: LibraryTargets = {
  invoices: { model: 'Invoice' },
  seats: { model: 'Seat', key: ['flight', 'number'] },
  payments: { model: 'Payment' },
  ...PROPERTIES,
};

export interface RowLockAdapterOptions extends IsolationOptions {
  /** Settings of the pool: all three libraries have one of `pg`. */
  readonly pool?: Omit<PoolConfig, 'connectionString'>;
}

/** Opens an adapter on the database at that URL, which has the tables of the Prisma schema. */
export type OpenRowLockAdapter = (
  url: string,
  options?: RowLockAdapterOptions,
) => Promise<RowLockAdapter>;

export const ROW_LOCK_ADAPTERS: Readonly<Record<string, OpenRowLockAdapter>> = {
  async pg(url, { pool: settings, ...isolation } = {}) {
    const pool = new Pool({ connectionString: url, max: 30, ...settings });
    // Of a connection that is lost while nobody uses it the pool tells its owner, who has to listen.
    pool.on('error', () => undefined);
    return {
      ...COLUMNS,
      library: pool,
      transactions: new PgTransactions({ pool, ...isolation }),
      ask: (sql) => (currentTransaction<PoolClient>() as PoolClient).query(sql),
      close: () => pool.end(),
    };
  },

  async TypeORM(url, { pool: settings, ...isolation } = {}) {
    const dataSource = await openDataSource(url, settings);
    return {
      ...ENTITIES,
      library: dataSource,
      transactions: new TypeOrmTransactions({ dataSource, ...isolation }),
      ask: askTypeOrm,
      close: () => dataSource.destroy(),
    };
  },

  async Prisma(url, { pool: settings, ...isolation } = {}) {
    const client = await openPrisma(url, 30, settings);
    return {
      ...MODELS,
      library: client,
      transactions: new PrismaTransactions({ client, ...isolation }),
      ask: askPrisma,
      close: () => client.$disconnect(),
    };
  },
};

async function openDataSource(url: string, settings: PoolConfig = {}): Promise<DataSource> {
  const dataSource = new DataSource({
    type: 'postgres',
    url,
    entities: [InvoiceEntity, SeatEntity, PaymentEntity],
    poolSize: 30,
    extra: settings,
  });
  return dataSource.initialize();
}

function askTypeOrm(sql: string): Promise<unknown> {
  return (currentTransaction<EntityManager>() as EntityManager).query(sql);
}

function askPrisma(sql: string): Promise<unknown> {
  const tx = currentTransaction<PrismaTransactionClient>() as PrismaTransactionClient;
  return /^select/i.test(sql) ? tx.$queryRawUnsafe(sql) : tx.$executeRawUnsafe(sql);
}
