import { relative } from 'node:path';
import { expect, it } from '@jest/globals';
import { preparePrisma } from '../../../support/prisma-client.js';
import { compileSnippets, ROOT, writeSnippets } from '../../../support/readme.js';

const FOLDER = 'prisma-types';

it('takes the client that Prisma generates as its types declare it, extended or not', async () => {
  const client = relative(ROOT, await preparePrisma()).replace(/\.ts$/, '.js');
  const text = `
import { PrismaPg } from '@prisma/adapter-pg';
import { TransactionHost } from '@nestjs-cls/transactional';
import { TransactionalAdapterPrisma } from '@nestjs-cls/transactional-adapter-prisma';
import { ClsTransactions, PrismaTransactions } from 'nestjs-cmdx/row-lock';
import type { PrismaRows } from '../../test/support/prisma-client.js';
import { type Account, type Invoice, type Payment, PrismaClient, type Seat } from '../../${client}';

const client = new PrismaClient({ adapter: new PrismaPg({ connectionString: '' }) });
const extended = client.$extends({ model: { invoice: { async unpaid() { return 1; } } } });
declare const host: TransactionHost<TransactionalAdapterPrisma<PrismaClient>>;
export const all = [
  new PrismaTransactions({ client }),
  new PrismaTransactions({ client: extended }),
  new ClsTransactions(host),
];
// @ts-expect-error: no client
export const refused = new PrismaTransactions({ client: {} });

type Generated = { invoice: Invoice; payment: Payment; account: Account; seat: Seat };
export const there = (rows: Generated): PrismaRows => rows;
export const back = (rows: PrismaRows): Generated => rows;
`;
  writeSnippets(FOLDER, [{ heading: 'client', language: 'ts', text }]);
  expect(await compileSnippets(FOLDER)).toBe('');
}, 60_000);
