import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  LockedRow,
  RowLockConflictError,
  RowLockedError,
  RowLocks,
  RowMissingError,
  WithRowLock,
} from 'nestjs-cmdx';
import { Pool, type PoolClient } from 'pg';
import { sqlStateOf } from '../../../lib/row-lock/sql-state.js';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { CLS_ADAPTERS } from '../../support/cls-adapters.js';
import { borrowPostgres, type PostgresDatabases } from '../../support/postgres-server.js';
import { PRISMA_TABLES } from '../../support/prisma-client.js';
import { ROW_LOCK_ADAPTERS, type RowLockAdapter } from '../../support/row-lock-adapters.js';
import { settledWithin, until } from '../../support/time.js';

closeApplicationsAfterEach();

const PAYMENT = '0190a0f0-1111-7000-8000-00000000000a';
/** Whatever a database may be given beside what it is made with, whose numbers are lower. */
const CATALOG = `
  SELECT 'relation' AS kind, oid::regclass || ' ' || relkind::text AS name FROM pg_class WHERE oid >= 16384
  UNION ALL SELECT 'column', attrelid::regclass || '.' || attname FROM pg_attribute WHERE attrelid >= 16384
  UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname FROM pg_trigger WHERE oid >= 16384
  UNION ALL SELECT 'event trigger', evtname FROM pg_event_trigger
  UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE oid >= 16384
  UNION ALL SELECT 'type', oid::regtype::text FROM pg_type WHERE oid >= 16384
  UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname FROM pg_constraint WHERE oid >= 16384
  UNION ALL SELECT 'rule', ev_class::regclass || '.' || rulename FROM pg_rewrite WHERE oid >= 16384
  UNION ALL SELECT 'policy', polrelid::regclass || '.' || polname FROM pg_policy
  UNION ALL SELECT 'schema', nspname FROM pg_namespace
  UNION ALL SELECT 'extension', extname FROM pg_extension
  UNION ALL SELECT 'setting', setrole || ' ' || array_to_string(setconfig, ',') FROM pg_db_role_setting
  UNION ALL SELECT 'prepared transaction', gid FROM pg_prepared_xacts
  UNION ALL SELECT 'advisory lock', objid::text FROM pg_locks JOIN pg_database d ON database = d.oid WHERE locktype = 'advisory' AND datname = current_database()
  ORDER BY 1, 2`;

const ADAPTERS = { ...ROW_LOCK_ADAPTERS, ...CLS_ADAPTERS };

let databases: PostgresDatabases;

beforeAll(async () => {
  databases = await borrowPostgres();
}, 60_000);

afterAll(() => databases.stop());

describe.each(Object.entries(ADAPTERS))('row locks through %s', (_name, open) => {
  let pool: Pool;
  let adapter: RowLockAdapter;
  /** Before the first call of all. */
  let catalogBefore: object[];
  let locks: RowLocks;
  const others: PoolClient[] = [];

  beforeAll(async () => {
    const url = await databases.createDatabase();
    pool = new Pool({ connectionString: url, max: 10 });
    await pool.query(PRISMA_TABLES);
    adapter = await open(url);
    catalogBefore = await catalog();
  }, 60_000);

  afterAll(async () => {
    await adapter.close();
    await pool.end();
  });

  beforeEach(async () => {
    await pool.query(
      `TRUNCATE invoices, payments, billing."Booked Seats";
       INSERT INTO invoices (invoice_no, amount_cents, invoice_status) VALUES (1, 100, 'new'), (2, 200, 'new');
       INSERT INTO payments VALUES ('${PAYMENT}', 1, 5);
       INSERT INTO billing."Booked Seats" VALUES ('O''Hare', 12, NULL), ('O''Hare', 13, NULL)`,
    );
    const app = await boot({}, { rowLock: adapter.transactions });
    locks = app.get(RowLocks);
  });

  afterEach(async () => {
    for (const other of others.splice(0)) {
      await other.query('ROLLBACK');
      other.release();
    }
  });

  const catalog = async (): Promise<object[]> => (await pool.query<object>(CATALOG)).rows;

  /** Somebody else, in a transaction of his own, who has let go at the end of the test. */
  async function another(sql: string): Promise<PoolClient> {
    const other = await pool.connect();
    others.push(other);
    await other.query(`BEGIN; ${sql}`);
    return other;
  }

  async function hold(sql: string): Promise<() => Promise<unknown>> {
    const other = await another(`${sql} FOR UPDATE`);
    return () => other.query('ROLLBACK');
  }

  const holdInvoice = (id: number): Promise<() => Promise<unknown>> =>
    hold(`SELECT 1 FROM invoices WHERE invoice_no = ${id}`);

  async function invoice(id: number): Promise<{ status: string; amount: number } | undefined> {
    const text =
      'SELECT invoice_status AS status, amount_cents AS amount FROM invoices WHERE invoice_no = $1';
    return (await pool.query<{ status: string; amount: number }>(text, [id])).rows[0];
  }

  const statusOf = async (id: number): Promise<unknown> => (await invoice(id))?.status;

  const pay = (id: number): Promise<unknown> =>
    adapter.ask(`UPDATE invoices SET invoice_status = 'paid' WHERE invoice_no = ${id}`);

  /** What the body itself reads, in the transaction that is open. */
  async function amountInside(): Promise<unknown> {
    const sql = 'SELECT amount_cents FROM invoices WHERE invoice_no = 1';
    const answer = (await adapter.ask(sql)) as object[] | { rows: object[] };
    const [row] = Array.isArray(answer) ? answer : answer.rows;
    return (row as { amount_cents: number }).amount_cents;
  }

  const someoneWaits = (): Promise<void> =>
    until(async () => {
      const { rowCount } = await pool.query(
        `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      return rowCount === 1;
    }, 'a call that waits for a lock');

  it('commits what the body did, with the row as the library maps it', async () => {
    const status = await locks.withLock(adapter.invoices, 1, async (row) => {
      await pay(1);
      return adapter.status(row);
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

  it('gives up at once, or after a while, and has the lock when it is free', async () => {
    const letGo = await holdInvoice(1);
    for (const wait of [0, '20ms'] as const) {
      const call = locks.withLock(adapter.invoices, 1, () => 'locked', { wait });
      await expect(call).rejects.toBeInstanceOf(RowLockedError);
      await expect(call).rejects.toMatchObject({ code: 'row_locked' });
    }
    const waiting = locks.withLock(adapter.invoices, 1, () => 'locked', { wait: '20s' });
    await someoneWaits();
    await letGo();
    await expect(waiting).resolves.toBe('locked');
  });

  it('leaves out rows that others hold', async () => {
    const letGo = await holdInvoice(1);
    const amounts = await locks.withLock(
      adapter.invoices,
      [1, 2],
      (found) => found.map((row) => adapter.amount(row)),
      { lockFree: true },
    );
    expect(amounts).toEqual([200]);
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
    const amountOf = (id: string): Promise<unknown> =>
      locks.withLock(adapter.payments, id, (row) => adapter.amount(row));
    await expect(amountOf(PAYMENT)).resolves.toBe(5);
    await expect(amountOf(PAYMENT.toUpperCase())).resolves.toBe(5);
    await expect(amountOf("x' OR '1'='1")).rejects.toMatchObject({ code: 'key_invalid' });
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

  it('keeps no plain reader off, who sees what was committed last', async () => {
    const seen = await locks.withLock(adapter.invoices, 1, async () => {
      await pay(1);
      return settledWithin(2_000, statusOf(1));
    });
    expect([seen, await statusOf(1)]).toEqual(['new', 'paid']);
  });

  it('shows the body, after a wait, what was committed last: its row, and whatever it reads', async () => {
    @Injectable()
    class Invoices {
      @WithRowLock(adapter.invoices, arg(0), { wait: '20s' })
      async amounts(_id: number, @LockedRow() row?: object): Promise<unknown[]> {
        return [row && adapter.amount(row), await amountInside()];
      }
    }
    const app = await boot({ providers: [Invoices] }, { rowLock: adapter.transactions });
    const service = app.get(Invoices);
    const other = await another('UPDATE invoices SET amount_cents = 101 WHERE invoice_no = 1');
    const fresh = service.amounts(1);
    await someoneWaits();
    await other.query('COMMIT');
    await expect(fresh).resolves.toEqual([101, 101]);

    await other.query('BEGIN; UPDATE invoices SET amount_cents = 102 WHERE invoice_no = 1');
    const within = locks.withLock(adapter.invoices, 2, async () => {
      const before = await amountInside();
      return [before, ...(await service.amounts(1))];
    });
    await someoneWaits();
    await other.query('COMMIT');
    // Nothing that the transaction has read before is given again.
    await expect(within).resolves.toEqual([101, 102, 102]);
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

  describe('in a transaction that is open', () => {
    /** Every way in which one may be opened that is to be joined. */
    const owners = (): ((body: () => Promise<unknown>) => Promise<unknown>)[] => [
      (body) => locks.withLock(adapter.seats, adapter.seat("O'Hare", 12), body),
      ...(adapter.within ? [adapter.within] : []),
    ];

    it('what is done is its own, committed and rolled back with it', async () => {
      for (const own of owners()) {
        const gone = new Error('gone');
        const failing = own(async () => {
          await locks.withLock(adapter.invoices, 1, () => pay(1));
          throw gone;
        });
        await expect(failing).rejects.toBe(gone);
        expect(await statusOf(1)).toBe('new');

        await own(async () => {
          await locks.withLock(adapter.invoices, 1, () => pay(1));
          expect(await statusOf(1)).toBe('new');
          const row = await locks.lock(adapter.invoices, 1);
          expect(adapter.status(row)).toBe('paid');
        });
        expect(await statusOf(1)).toBe('paid');
        await pool.query("UPDATE invoices SET invoice_status = 'new'");
      }
    });

    it('a row stays locked until that ends', async () => {
      const take = (): Promise<unknown> =>
        pool.query('SELECT 1 FROM invoices WHERE invoice_no = 1 FOR UPDATE NOWAIT');
      for (const own of owners()) {
        await own(async () => {
          await locks.withLock(adapter.invoices, 1, () => 'locked');
          await expect(take()).rejects.toMatchObject({ code: '55P03' });
        });
        await expect(take()).resolves.toBeDefined();
      }
    });

    it('a lock that is not to be had, and a key that is none, do not spoil it', async () => {
      const letGo = await holdInvoice(2);
      for (const own of owners()) {
        await own(async () => {
          await locks.withLock(adapter.invoices, 1, () => pay(1));
          for (const wait of [0, '50ms'] as const) {
            const inner = locks.withLock(adapter.invoices, 2, () => 'locked', { wait });
            await expect(inner).rejects.toBeInstanceOf(RowLockedError);
          }
          await expect(
            locks.lock(adapter.invoices, 2, { clause: 'FOR SHARE NOWAIT' }),
          ).rejects.toBeInstanceOf(RowLockedError);
          await expect(locks.lock(adapter.invoices, 'two')).rejects.toMatchObject({
            code: 'key_invalid',
          });
          await locks.withLock(adapter.invoices, 1, () =>
            adapter.ask('UPDATE invoices SET amount_cents = 1 WHERE invoice_no = 1'),
          );
        });
        expect(await invoice(1)).toEqual({ status: 'paid', amount: 1 });
        await pool.query(
          "UPDATE invoices SET invoice_status = 'new', amount_cents = 100 WHERE invoice_no = 1",
        );
      }
      await letGo();
    });

    it('a conflict goes up untouched; who has opened it tells it', async () => {
      const conflict = (): Promise<unknown> =>
        adapter.ask("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40P01'; END $$");
      const alone = locks.withLock(adapter.invoices, 1, conflict);
      await expect(alone).rejects.toBeInstanceOf(RowLockConflictError);
      await expect(alone).rejects.toMatchObject({ metadata: { sqlState: '40P01' } });

      for (const own of owners()) {
        let inner: unknown;
        const outer = own(() =>
          locks.withLock(adapter.invoices, 2, conflict).catch((error: unknown) => {
            inner = error;
            throw error;
          }),
        );
        const told = await outer.catch((error: unknown) => error);
        expect(inner).not.toBeInstanceOf(RowLockConflictError);
        expect(sqlStateOf(inner)).toBe('40P01');
        // The owner who is not ours has no word for it.
        if (own === adapter.within) expect(told).toBe(inner);
        else expect(told).toBeInstanceOf(RowLockConflictError);
      }
    });
  });

  it('locks nothing outside a transaction', async () => {
    await expect(locks.lock(adapter.invoices, 1)).rejects.toMatchObject({ code: 'no_transaction' });
  });

  it('adds nothing to the database, whatever is asked', async () => {
    const letGo = await holdInvoice(2);
    const everyKind = async (): Promise<void> => {
      for (const mode of ['update', 'no key update', 'share', 'key share'] as const) {
        for (const options of [{ mode }, { mode, wait: 0 }, { mode, lockFree: true }] as const) {
          await locks.withLock(adapter.invoices, [1], () => pay(1), options);
          await locks.withLock(adapter.seats, adapter.seat("O'Hare", 12), () => 'locked', options);
        }
      }
      for (const id of [2, 9, 'two']) {
        await locks.withLock(adapter.invoices, id, () => 0, { wait: '5ms' }).catch(() => undefined);
      }
    };
    await everyKind();
    await locks.withLock(adapter.payments, PAYMENT, everyKind);
    const failing = locks.withLock(adapter.invoices, 1, () => adapter.ask('SELECT 1 / 0'));
    await expect(failing).rejects.toThrow();
    await letGo();
    expect(await catalog()).toEqual(catalogBefore);
    expect(catalogBefore).toContainEqual({ kind: 'column', name: 'invoices.invoice_status' });
  });
});
