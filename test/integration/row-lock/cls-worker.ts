import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  ClsPluginTransactional,
  Propagation,
  Transactional,
  TransactionHost,
} from '@nestjs-cls/transactional';
import { TransactionalAdapterPrisma } from '@nestjs-cls/transactional-adapter-prisma';
import { TransactionalAdapterTypeOrm } from '@nestjs-cls/transactional-adapter-typeorm';
import { ClsModule } from 'nestjs-cls';
import { arg, CmdxModule, currentTransaction, LockedRow, WithRowLock } from 'nestjs-cmdx';
import { ClsTransactions } from 'nestjs-cmdx/row-lock';
import { DataSource, type EntityManager } from 'typeorm';
import { openPrisma, type PrismaTransactionClient } from '../../support/prisma-client.js';

// Tells the test what became of each question, and ends.
const [library, url = ''] = process.argv.slice(2);
const LIBRARY = 'the database library';
const overPrisma = library === 'prisma';

const { handle, end } = overPrisma ? await openClient() : await openDataSource();

async function openClient() {
  const client = await openPrisma(url);
  return { handle: client as object, end: () => client.$disconnect() };
}

async function openDataSource() {
  const dataSource = await new DataSource({ type: 'postgres', url }).initialize();
  return { handle: dataSource as object, end: () => dataSource.destroy() };
}

const INVOICES = { table: 'invoices', key: 'invoice_no' };

@Injectable()
class Invoices {
  constructor(private readonly host: TransactionHost) {}

  @WithRowLock(INVOICES, arg(0))
  async pay(id: number, @LockedRow() row?: { invoice_status: string }): Promise<unknown> {
    await this.write(id);
    return { status: row?.invoice_status, same: currentTransaction() === this.host.tx };
  }

  @Transactional(Propagation.Required)
  async write(id: number): Promise<void> {
    const sql = `UPDATE invoices SET invoice_status = 'paid' WHERE invoice_no = ${id}`;
    if (overPrisma) await (this.host.tx as PrismaTransactionClient).$executeRawUnsafe(sql);
    else await (this.host.tx as EntityManager).query(sql);
  }

  /** Ours is the owner. */
  @WithRowLock(INVOICES, arg(0))
  async payAndFail(id: number): Promise<void> {
    await this.write(id);
    throw new Error('no');
  }

  /** Theirs is the owner. */
  @Transactional(Propagation.Required)
  async payWithin(id: number): Promise<void> {
    await this.pay(id);
    throw new Error('no');
  }

  @WithRowLock(INVOICES, arg(0), { wait: 0 })
  async lock(_id: number): Promise<string> {
    return 'locked';
  }

  /** The row is held by another transaction all the while. */
  @Transactional(Propagation.Required)
  async busyWithin(id: number, other: number): Promise<string> {
    const refused = await this.lock(other).catch((error: { code?: string }) => error.code);
    await this.pay(id);
    return `${refused}`;
  }
}

@Module({ providers: [{ provide: LIBRARY, useValue: handle }], exports: [LIBRARY] })
class LibraryModule {}

const adapter = overPrisma
  ? new TransactionalAdapterPrisma({ prismaInjectionToken: LIBRARY, sqlFlavor: 'postgresql' })
  : new TransactionalAdapterTypeOrm({ dataSourceToken: LIBRARY });

@Module({
  imports: [
    ClsModule.forRoot({
      global: true,
      plugins: [
        new ClsPluginTransactional({ imports: [LibraryModule], adapter: adapter as never }),
      ],
    }),
    CmdxModule.forRootAsync({
      inject: [TransactionHost],
      useFactory: (host: TransactionHost) => ({ rowLock: new ClsTransactions(host) }),
    }),
  ],
  providers: [Invoices],
})
class AppModule {}

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'] });
const invoices = app.get(Invoices);
const endOf = (call: Promise<unknown>): Promise<unknown> =>
  call.catch((error: Error) => error.message);

const answers = {
  paid: await endOf(invoices.pay(1)),
  failed: await endOf(invoices.payAndFail(2)),
  within: await endOf(invoices.payWithin(3)),
  busyWithin: await endOf(invoices.busyWithin(5, 4)),
};
await app.close();
await end();
process.send?.(answers);
process.disconnect();
