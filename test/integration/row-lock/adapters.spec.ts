import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import {
  type Duration,
  RowLockConflictError,
  RowLockedError,
  RowLocks,
  RowMissingError,
} from 'nestjs-cmdx';
import { Pool } from 'pg';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { borrowPostgres, type PostgresDatabases } from '../../support/postgres-server.js';
import { PRISMA_TABLES } from '../../support/prisma-client.js';
import { ROW_LOCK_ADAPTERS, type RowLockAdapter } from '../../support/row-lock-adapters.js';

closeApplicationsAfterEach();

const BOUND_MS = 200;
const GRACE_MS = 150;

describe.each(Object.keys(ROW_LOCK_ADAPTERS))('row locks through %s', (name) => {
  let databases: PostgresDatabases;
  let pool: Pool;
  let adapter: RowLockAdapter;
  let locks: RowLocks;

  beforeAll(async () => {
    databases = await borrowPostgres();
    const url = await databases.createDatabase();
    pool = new Pool({ connectionString: url, max: 10 });
    await pool.query(PRISMA_TABLES);
    adapter = await (ROW_LOCK_ADAPTERS[name] as (url: string) => Promise<RowLockAdapter>)(url);
  }, 60_000);

  afterAll(async () => {
    await adapter.close();
    await pool.end();
    await databases.stop();
  });

  beforeEach(async () => {
    await pool.query(
      `TRUNCATE invoices, payments, billing."Booked Seats";
       INSERT INTO invoices (invoice_no, amount_cents, invoice_status) VALUES (1, 100, 'new'), (2, 200, 'new');
       INSERT INTO billing."Booked Seats" VALUES ('O''Hare', 12, NULL), ('O''Hare', 13, NULL)`,
    );
    const app = await boot({}, { rowLock: adapter.transactions });
    locks = app.get(RowLocks);
  });

  async function hold(sql: string): Promise<() => Promise<void>> {
    const other = await pool.connect();
    await other.query('BEGIN');
    await other.query(`${sql} FOR UPDATE`);
    return async () => {
      await other.query('ROLLBACK');
      other.release();
    };
  }

  const holdInvoice = (id: number): Promise<() => Promise<void>> =>
    hold(`SELECT 1 FROM invoices WHERE invoice_no = ${id}`);

  const statusOf = async (id: number): Promise<unknown> => {
    const text = 'SELECT invoice_status FROM invoices WHERE invoice_no = $1';
    return (await pool.query<{ invoice_status: string }>(text, [id])).rows[0]?.invoice_status;
  };

  const pay = (id: number): Promise<unknown> =>
    adapter.ask(`UPDATE invoices SET invoice_status = 'paid' WHERE invoice_no = ${id}`);

  it('commits what the body did, with the row as the library maps it', async () => {
    const status = await locks.withLock(adapter.invoices, 1, async (row) => {
      await pay(1);
      return adapter.status(row as object);
    });
    expect([status, await statusOf(1)]).toEqual(['new', 'paid']);
  });

  it('rolls back what the body did before it threw', async () => {
    const error = new Error('no');
    const call = locks.withLock(adapter.invoices, 1, async () => {
      await pay(1);
      throw error;
    });
    await expect(call).rejects.toBe(error);
    expect(await statusOf(1)).toBe('new');
  });

  it('gives up at once, or waits for as long as it may', async () => {
    const letGo = await holdInvoice(1);
    const waitedMs = async (wait: Duration): Promise<number> => {
      const error = await locks
        .withLock(adapter.invoices, 1, () => 'locked', { wait })
        .catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(RowLockedError);
      return (error as RowLockedError).metadata.waitedMs;
    };
    expect(await waitedMs(0)).toBeLessThan(GRACE_MS);
    const waited = await waitedMs(`${BOUND_MS}ms`);
    expect(waited).toBeGreaterThanOrEqual(BOUND_MS - 1);
    expect(waited).toBeLessThan(BOUND_MS + GRACE_MS);
    await letGo();
    await expect(locks.withLock(adapter.invoices, 1, () => 'locked')).resolves.toBe('locked');
  });

  it('leaves out rows that others hold', async () => {
    const letGo = await holdInvoice(1);
    const rows = await locks.withLock(adapter.invoices, [1, 2], (found) => found, {
      lockFree: true,
    });
    expect(rows).toHaveLength(1);
    const none = locks.withLock(adapter.invoices, [1], () => 'locked', { lockFree: true });
    await expect(none).rejects.toBeInstanceOf(RowLockedError);
    await letGo();
  });

  it('says that a row is missing, or takes that as it is', async () => {
    await expect(locks.withLock(adapter.invoices, 9, () => 'run')).rejects.toBeInstanceOf(
      RowMissingError,
    );
    await expect(locks.withLock(adapter.invoices, [1, 9], () => 'run')).rejects.toBeInstanceOf(
      RowMissingError,
    );
    await expect(
      locks.withLock(adapter.invoices, 9, (row) => row ?? 'none', { onMissing: 'run' }),
    ).resolves.toBe('none');
  });

  it('knows keys of several columns, and names that need quotes', async () => {
    const letGo = await hold(`SELECT 1 FROM billing."Booked Seats" WHERE "select" = 12`);
    const lock = (number: number): Promise<unknown> =>
      locks.withLock(adapter.seats, adapter.seat("O'Hare", number), (row) => row, { wait: 0 });
    await expect(lock(12)).rejects.toBeInstanceOf(RowLockedError);
    await expect(lock(13)).resolves.toBeDefined();
    await expect(lock(14)).rejects.toBeInstanceOf(RowMissingError);
    await letGo();
  });

  it('knows uuids, and refuses a text that is none', async () => {
    const id = '0190a0f0-1111-7000-8000-000000000001';
    await pool.query(
      'INSERT INTO payments (payment_id, invoice_no, amount_cents) VALUES ($1, 1, 5)',
      [id],
    );
    const payments = { table: 'payments', key: 'payment_id' };
    await expect(locks.withLock(payments, id, () => 'locked')).resolves.toBe('locked');
    await expect(locks.withLock(payments, "x' OR '1'='1", () => 'locked')).rejects.toMatchObject({
      code: 'key_invalid',
    });
  });

  it('answers rows in the order of their keys, however these are written', async () => {
    const numbers = await locks.withLock(adapter.invoices, ['02', '1'], (rows) =>
      rows.map((row) => adapter.amount(row)),
    );
    expect(numbers).toEqual([200, 100]);
    const one = await locks.withLock(adapter.invoices, '2', (row) => adapter.amount(row));
    expect(one).toBe(200);
    await pool.query(
      `INSERT INTO billing."Booked Seats" VALUES ('aa', 1, 'ada'), ('AA', 1, 'bob')`,
    );
    const keys = [adapter.seat('AA', 1), adapter.seat('aa', 1)];
    const holders = await locks.withLock(adapter.seats, keys, (rows) =>
      rows.map((row) => adapter.holder(row)),
    );
    expect(holders).toEqual(['bob', 'ada']);
    const found = await locks.withLock(
      adapter.invoices,
      [2, 9, '1'],
      (rows) => rows.map((row) => row && adapter.amount(row)),
      { onMissing: 'run' },
    );
    expect(found).toEqual([200, undefined, 100]);
  });

  it('does not call saved what the database has given up', async () => {
    const caught = locks.withLock(adapter.invoices, 1, async () => {
      await pay(1);
      await adapter.ask('SELECT 1 / 0').catch(() => undefined);
      return 'paid';
    });
    await expect(caught).rejects.toMatchObject({ code: 'transaction_aborted' });
    expect(await statusOf(1)).toBe('new');
  });

  it('joins a transaction that is open, and a lock that is not to be had does not spoil it', async () => {
    const letGo = await holdInvoice(2);
    await locks.withLock(adapter.invoices, 1, async () => {
      await pay(1);
      for (const wait of [0, '50ms'] as const) {
        const inner = locks.withLock(adapter.invoices, 2, () => 'locked', { wait });
        await expect(inner).rejects.toBeInstanceOf(RowLockedError);
      }
      await expect(
        locks.lock(adapter.invoices, 2, { clause: 'FOR SHARE NOWAIT' }),
      ).rejects.toBeInstanceOf(RowLockedError);
      await adapter.ask('UPDATE invoices SET amount_cents = 1 WHERE invoice_no = 1');
    });
    await letGo();
    expect(await statusOf(1)).toBe('paid');
  });

  it('tells a conflict where it has opened the transaction, and hands it up where it has not', async () => {
    const conflict = (): Promise<unknown> =>
      adapter.ask("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40P01'; END $$");
    const own = locks.withLock(adapter.invoices, 1, conflict);
    await expect(own).rejects.toBeInstanceOf(RowLockConflictError);
    await expect(own).rejects.toMatchObject({ metadata: { sqlState: '40P01' } });
    let inner: unknown;
    const outer = locks.withLock(adapter.invoices, 1, async () => {
      await locks.withLock(adapter.invoices, 2, conflict).catch((error: unknown) => {
        inner = error;
        throw error;
      });
    });
    await expect(outer).rejects.toBeInstanceOf(RowLockConflictError);
    expect(inner).toBeInstanceOf(Error);
    expect(inner).not.toBeInstanceOf(RowLockConflictError);
  });

  it('locks nothing outside a transaction', async () => {
    await expect(locks.lock(adapter.invoices, 1)).rejects.toMatchObject({ code: 'no_transaction' });
  });
});
