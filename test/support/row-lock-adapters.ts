import 'reflect-metadata';
import { currentTransaction, type RowTarget } from 'nestjs-cmdx';
import {
  PgTransactions,
  PrismaTransactions,
  type Transactions,
  TypeOrmTransactions,
} from 'nestjs-cmdx/row-lock';
import { Pool, type PoolClient } from 'pg';
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

/** What a database library calls the same tables. */
export interface LibraryTargets {
  readonly invoices: RowTarget;
  readonly seats: RowTarget;
  /** How a row of the invoices tells its status and amount, a seat its holder; how a key of the seats is written. */
  readonly status: (row: object) => unknown;
  readonly amount: (row: object) => unknown;
  readonly holder: (row: object) => unknown;
  readonly seat: (flight: string, number: number) => Readonly<Record<string, string | number>>;
}

/** One way to lock rows. */
export interface RowLockAdapter extends LibraryTargets {
  readonly transactions: Transactions;
  /** Asks in the transaction that is open here. */
  readonly ask: (sql: string) => Promise<unknown>;
  close(): Promise<void>;
}

const COLUMNS: LibraryTargets = {
  invoices: { table: 'invoices', key: 'invoice_no' },
  seats: { table: 'billing.Booked Seats', key: ['Flight No', 'select'] },
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
const ENTITIES: LibraryTargets = { invoices: InvoiceEntity, seats: SeatEntity, ...PROPERTIES };
const MODELS: LibraryTargets = {
  invoices: { model: 'Invoice' },
  seats: { model: 'Seat', key: ['flight', 'number'] },
  ...PROPERTIES,
};

/** Opens each adapter on the database at that URL, which has the tables of the Prisma schema. */
export const ROW_LOCK_ADAPTERS: Readonly<Record<string, (url: string) => Promise<RowLockAdapter>>> =
  {
    async pg(url) {
      const pool = new Pool({ connectionString: url, max: 30 });
      return {
        ...COLUMNS,
        transactions: new PgTransactions({ pool }),
        ask: (sql) => (currentTransaction<PoolClient>() as PoolClient).query(sql),
        close: () => pool.end(),
      };
    },

    async TypeORM(url) {
      const dataSource = await openDataSource(url);
      return {
        ...ENTITIES,
        transactions: new TypeOrmTransactions({ dataSource }),
        ask: askTypeOrm,
        close: () => dataSource.destroy(),
      };
    },

    async Prisma(url) {
      const client = await openPrisma(url, 30);
      return {
        ...MODELS,
        transactions: new PrismaTransactions({ client }),
        ask: askPrisma,
        close: () => client.$disconnect(),
      };
    },
  };

async function openDataSource(url: string): Promise<DataSource> {
  const dataSource = new DataSource({
    type: 'postgres',
    url,
    entities: [InvoiceEntity, SeatEntity],
    poolSize: 30,
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
