import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  currentInvocation,
  currentTransaction,
  LockedRow,
  RowLocks,
  RetryOn,
  RowLockConflictError,
  RowLockedError,
  RowMissingError,
  skip,
  WithRowLock,
} from 'nestjs-cmdx';
import { PgTransactions, TransactionAbortedError } from 'nestjs-cmdx/row-lock';
import { Pool, type PoolClient } from 'pg';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { borrowPostgres, type PostgresDatabases } from '../../support/postgres-server.js';
import { passing } from '../../support/time.js';

closeApplicationsAfterEach();

let databases: PostgresDatabases;
let pool: Pool;

beforeAll(async () => {
  databases = await borrowPostgres();
  pool = new Pool({ connectionString: await databases.createDatabase(), max: 60 });
  await pool.query(
    'CREATE TABLE invoices (id int PRIMARY KEY, status text NOT NULL); CREATE TABLE payments (invoice int NOT NULL)',
  );
}, 60_000);

afterAll(async () => {
  await pool.end();
  await databases.stop();
});

beforeEach(async () => {
  await pool.query(
    "TRUNCATE invoices, payments; INSERT INTO invoices VALUES (1, 'new'), (2, 'new')",
  );
});

const client = (): PoolClient => currentTransaction<PoolClient>() as PoolClient;

interface Invoice {
  readonly id: number;
  readonly status: string;
}

@Injectable()
class Invoices {
  /** What the body reads, pays and writes; nothing but the decorator keeps two apart. */
  async #pay(id: number, database: Pick<PoolClient, 'query'>): Promise<string> {
    const { rows } = await database.query<Invoice>('SELECT * FROM invoices WHERE id = $1', [id]);
    if (rows[0]?.status !== 'new') skip('paid before');
    await database.query('INSERT INTO payments VALUES ($1)', [id]);
    await database.query("UPDATE invoices SET status = 'paid' WHERE id = $1", [id]);
    return 'paid';
  }

  async unguarded(id: number): Promise<string> {
    const own = await pool.connect();
    try {
      await own.query('BEGIN');
      const paid = await this.#pay(id, own);
      await own.query('COMMIT');
      return paid;
    } catch (error) {
      await own.query('ROLLBACK');
      throw error;
    } finally {
      own.release();
    }
  }

  @WithRowLock('invoices', arg(0), { wait: '20s' })
  async pay(id: number): Promise<string> {
    return this.#pay(id, client());
  }

  @WithRowLock('invoices', arg(0), { wait: 0 })
  async payNow(_id: number, fn?: () => Promise<unknown>): Promise<unknown> {
    return fn?.();
  }

  @WithRowLock('invoices', arg(0), { wait: 0, onBusy: 'skip' })
  async payOrSkip(_id: number): Promise<string | undefined> {
    return 'paid';
  }

  @WithRowLock('invoices', arg(0), { wait: '200ms' })
  async payPatiently(_id: number, fn?: () => Promise<unknown>): Promise<unknown> {
    return fn?.();
  }

  @WithRowLock('invoices', arg(0))
  async status(_id: number, @LockedRow() invoice?: Invoice): Promise<unknown> {
    const row = (await currentInvocation()?.row) as Invoice | undefined;
    return [invoice?.status, row?.status];
  }

  @RetryOn(Error, { delay: '1ms' })
  @WithRowLock('invoices', arg(0))
  async stubborn(_id: number): Promise<void> {}

  attempts = 0;

  @RetryOn(RowLockConflictError, { delay: '1ms' })
  @WithRowLock('invoices', arg(0))
  async conflicting(_id: number, times: number): Promise<number> {
    this.attempts += 1;
    if (this.attempts <= times) {
      await client().query("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$");
    }
    return this.attempts;
  }
}

async function bootInvoices() {
  const app = await boot({ providers: [Invoices] }, { rowLock: new PgTransactions({ pool }) });
  return { ...app, invoices: app.get(Invoices), locks: app.get(RowLocks) };
}

const payments = async (): Promise<number> =>
  (await pool.query<{ count: number }>('SELECT count(*)::int FROM payments')).rows[0]?.count ?? -1;

/** Somebody else who holds the row of invoice 1 until told otherwise. */
async function holdInvoice(id = 1): Promise<() => Promise<void>> {
  const other = await pool.connect();
  await other.query('BEGIN');
  await other.query('SELECT 1 FROM invoices WHERE id = $1 FOR UPDATE', [id]);
  return async () => {
    await other.query('COMMIT');
    other.release();
  };
}

describe('one invoice, many who want to pay it', () => {
  it.each([3, 50])('%p at once make exactly one payment', async (many) => {
    const { invoices } = await bootInvoices();
    const answers = await Promise.all(Array.from({ length: many }, () => invoices.pay(1)));
    expect(answers.filter((answer) => answer === 'paid')).toHaveLength(1);
    expect(await payments()).toBe(1);
  });

  it('without the decorator they make several: the lock is what keeps them apart', async () => {
    const { invoices } = await bootInvoices();
    await Promise.allSettled(Array.from({ length: 50 }, () => invoices.unguarded(1)));
    expect(await payments()).toBeGreaterThan(1);
  });

  it('a plain read of the row is not delayed', async () => {
    const { invoices } = await bootInvoices();
    await invoices.payNow(1, async () => {
      await client().query("UPDATE invoices SET status = 'held' WHERE id = 1");
      const { rows } = await pool.query<Invoice>('SELECT * FROM invoices WHERE id = 1');
      expect(rows[0]?.status).toBe('new');
    });
  });
});

describe('a row that somebody else holds', () => {
  it('is not waited for with wait: 0', async () => {
    const { invoices, telemetry } = await bootInvoices();
    const letGo = await holdInvoice();
    const refused = await invoices.payNow(1).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(RowLockedError);
    expect(refused).toMatchObject({ code: 'row_locked', metadata: { table: 'invoices' } });
    expect((refused as RowLockedError).getStatus()).toBe(409);
    expect(telemetry.names).not.toContain('row_locked');
    await letGo();
    await invoices.payNow(1);
    expect(telemetry.names).toContain('row_locked');
  });

  it('lets the call be skipped', async () => {
    const { invoices, cmdx } = await bootInvoices();
    const letGo = await holdInvoice();
    const result = await cmdx.execute(() => invoices.payOrSkip(1));
    expect(result).toMatchObject({ status: 'skipped', metadata: { code: 'row_locked' } });
    await letGo();
    await expect(invoices.payOrSkip(1)).resolves.toBe('paid');
  });

  it('is waited for as long as it says, and what the transaction waits for afterwards is its own business', async () => {
    const { invoices } = await bootInvoices();
    const letGo = await holdInvoice();
    const refused = (await invoices
      .payPatiently(1)
      .catch((error: unknown) => error)) as RowLockedError;
    expect(refused).toBeInstanceOf(RowLockedError);
    expect(refused.metadata.waitedMs).toBeGreaterThanOrEqual(199);
    await letGo();
    const timeout = await invoices.payPatiently(1, async () => {
      const { rows } = await client().query<{ lock_timeout: string }>('SHOW lock_timeout');
      return rows[0]?.lock_timeout;
    });
    expect(timeout).toBe('0');
  });

  it('is seen as it was last committed after the wait', async () => {
    const { invoices } = await bootInvoices();
    const other = await pool.connect();
    await other.query("BEGIN; UPDATE invoices SET status = 'changed' WHERE id = 1");
    const seen = invoices.status(1);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await other.query('COMMIT');
    other.release();
    await expect(seen).resolves.toEqual(['changed', 'changed']);
  });
});

describe('a row that is not there, and a key that is none', () => {
  it.each([
    [3, RowMissingError, 404],
    ['x', undefined, 500],
    [{ a: 1 }, undefined, 500],
  ])('%p', async (id, kind, status) => {
    const { invoices } = await bootInvoices();
    const refused = await invoices.payNow(id as number).catch((error: unknown) => error);
    if (kind) expect(refused).toBeInstanceOf(kind);
    expect((refused as RowMissingError).getStatus()).toBe(status);
  });
});

describe('the transaction', () => {
  it('is rolled back when the body throws, and its connection is given back', async () => {
    const { invoices } = await bootInvoices();
    const error = new Error('no');
    const call = invoices.payNow(1, async () => {
      await client().query('INSERT INTO payments VALUES (1)');
      throw error;
    });
    await expect(call).rejects.toBe(error);
    expect(await payments()).toBe(0);
    expect(pool.idleCount).toBe(pool.totalCount);
  });

  it('is repeated as a whole after a conflict', async () => {
    const { invoices, clock } = await bootInvoices();
    await expect(passing(clock, invoices.conflicting(1, 2))).resolves.toBe(3);
  });

  it('is joined by a nested call, whose lock that is not to be had does not spoil it', async () => {
    const { invoices } = await bootInvoices();
    const letGo = await holdInvoice(2);
    await invoices.payNow(1, async () => {
      await client().query('INSERT INTO payments VALUES (1)');
      await expect(invoices.payNow(2)).rejects.toBeInstanceOf(RowLockedError);
      await expect(invoices.payPatiently(2)).rejects.toBeInstanceOf(RowLockedError);
      await client().query('INSERT INTO payments VALUES (2)');
    });
    await letGo();
    expect(await payments()).toBe(2);
  });

  it('that is spoiled and not its own is not tried again, wherever it failed', async () => {
    const { invoices, telemetry } = await bootInvoices();
    const outer = invoices.payNow(1, async () => {
      await client()
        .query('SELECT 1 / 0')
        .catch(() => undefined);
      await expect(invoices.stubborn(2)).rejects.toMatchObject({ code: '25P02' });
    });
    // Its own COMMIT would have been a ROLLBACK that nobody is told of.
    await expect(outer).rejects.toBeInstanceOf(TransactionAbortedError);
    expect(telemetry.names).not.toContain('task_retried');
  });
});

describe('the service', () => {
  it('locks rows in a transaction of its own, and answers them in the order of their keys', async () => {
    const { locks } = await bootInvoices();
    const ids = await locks.withLock('invoices', [2, 1], async (rows: Invoice[]) =>
      rows.map(({ id }) => id),
    );
    expect(ids).toEqual([2, 1]);
  });

  it('locks nothing outside a transaction', async () => {
    const { locks } = await bootInvoices();
    await expect(locks.lock('invoices', 1)).rejects.toMatchObject({ code: 'no_transaction' });
  });

  it('leaves out what others hold', async () => {
    const { locks, invoices } = await bootInvoices();
    const letGo = await holdInvoice(1);
    await invoices.payNow(2, async () => {
      const rows = await locks.lock<Invoice>('invoices', [1, 2], {
        clause: 'FOR UPDATE SKIP LOCKED',
      });
      expect(rows.map(({ id }) => id)).toEqual([2]);
    });
    await letGo();
  });

  it.each(['FOR UPDATE; DROP TABLE invoices', 'for update', '', 7])(
    'takes no clause but those of the list: %p',
    async (clause) => {
      const { locks } = await bootInvoices();
      await expect(locks.lock('invoices', 1, { clause: clause as never })).rejects.toMatchObject({
        message: expect.stringContaining(
          'RowLocks.lock option "clause": expected one of FOR UPDATE',
        ),
      });
    },
  );
});

it('a method that locks rows needs a database', async () => {
  await expect(boot({ providers: [Invoices] })).rejects.toThrow(
    /Invoices\.\w+: @WithRowLock: expected CmdxModule\.forRoot\(\{ rowLock/,
  );
});
