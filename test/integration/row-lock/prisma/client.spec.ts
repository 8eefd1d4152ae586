import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { borrowPostgres, type PostgresDatabases } from '../../../support/postgres-server.js';
import { openPrismaDatabase, type PrismaClient } from '../../../support/prisma-client.js';

let databases: PostgresDatabases;
let client: PrismaClient;

beforeAll(async () => {
  databases = await borrowPostgres();
  ({ client } = await openPrismaDatabase(databases));
}, 60_000);

afterAll(async () => {
  await client.$disconnect();
  await databases.stop();
});

describe('the client of the test schema', () => {
  it('maps what the database calls otherwise', async () => {
    await client.invoice.create({ data: { id: 1, amountCents: 4_200 } });
    expect(await client.$queryRawUnsafe('SELECT * FROM invoices')).toEqual([
      { invoice_no: 1, amount_cents: 4_200, invoice_status: 'open', paid_at: null },
    ]);

    const payment = await client.payment.create({ data: { invoiceId: 1, amountCents: 4_200 } });
    expect(payment.id).toMatch(/^[\da-f]{8}-[\da-f-]{27}$/);
    expect(await client.payment.findMany({ where: { invoiceId: 1 } })).toEqual([payment]);
  });

  it('knows keys of two columns, big numbers, another schema and names in quotes', async () => {
    const seat = { flight: "O'Hare", number: 12, holder: null };
    await client.seat.create({ data: seat });
    expect(await client.seat.findMany({ where: { flight: "O'Hare", number: 12 } })).toEqual([seat]);

    const account = { id: 9_007_199_254_740_993n, balanceCents: -1n };
    await client.account.create({ data: account });
    expect(await client.account.findMany()).toEqual([account]);
  });

  it('rolls back a transaction whose body throws', async () => {
    const failing = client.$transaction(async (tx) => {
      await tx.invoice.create({ data: { id: 2, amountCents: 1 } });
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    expect(await client.invoice.count({ where: { id: 2 } })).toBe(0);
  });
});
