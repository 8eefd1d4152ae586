import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  arg,
  currentTransaction,
  IdempotentBy,
  LockedRow,
  LockWith,
  RateLimit,
  RetryOn,
  RowLockConflictError,
  WithRowLock,
} from 'nestjs-cmdx';
import { type PgClient, type PgPool, PgTransactions } from 'nestjs-cmdx/row-lock';
import { Client, Pool, type PoolClient } from 'pg';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootOnRedis } from '../../support/on-redis.js';
import { type PostgresServer, startPostgres } from '../../support/postgres-server.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { PRISMA_TABLES } from '../../support/prisma-client.js';
import { ROW_LOCK_ADAPTERS, type RowLockAdapter } from '../../support/row-lock-adapters.js';
import { until } from '../../support/time.js';

closeApplicationsAfterEach();

/** How long a statement is on its way: what does not wait for it is seen to come before it. */
const WAY_MS = 5;
/** How long a COMMIT takes that has something to save. */
const COMMIT_MS = 30;

const PAY =
  '/* body */ UPDATE orders SET paid = paid + 1 RETURNING pg_current_xact_id()::text AS id';
const CONFLICT = "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$";

let database: PostgresServer;
let redis: RedisServer;
let observer: Redis;
let pool: Pool;

beforeAll(async () => {
  [database, redis] = await Promise.all([startPostgres({ logStatements: true }), startRedis()]);
  observer = new Redis(redis.url);
  pool = new Pool({ connectionString: await database.createDatabase() });
  await pool.query(
    `CREATE TABLE orders (id int PRIMARY KEY, paid int NOT NULL);
     CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS
       $$ BEGIN PERFORM pg_sleep(${COMMIT_MS / 1_000}); RETURN NULL; END $$;
     CREATE CONSTRAINT TRIGGER slow_commit AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED
       FOR EACH ROW EXECUTE FUNCTION take_time()`,
  );
}, 60_000);

afterAll(async () => {
  observer.disconnect();
  await pool.end();
  await Promise.all([database.stop(), redis.stop()]);
});

/** The pool, a little farther away than it is. */
const farPool: PgPool = {
  async connect(): Promise<PgClient> {
    const client = await pool.connect();
    return {
      async query(sql, values) {
        await sleep(WAY_MS);
        return client.query<object>(sql, values);
      },
      release: (error) => client.release(error),
      on: (event, listener) => client.on(event, listener),
      removeListener: (event, listener) => client.removeListener(event, listener),
    };
  },
};

@Injectable()
class Orders {
  /** The transaction of each attempt. */
  readonly transactions: unknown[] = [];
  /** What each attempt does after it has paid. */
  afterwards: (attempt: number) => Promise<unknown> = async () => undefined;

  @RateLimit(arg(0), { max: 10, per: '1m' })
  @LockWith(arg(0))
  @IdempotentBy(arg(1))
  @RetryOn(RowLockConflictError, { delay: '1ms' })
  @WithRowLock('orders', () => 1, { wait: 0 })
  async pay(_account: string, reference: string): Promise<string> {
    const { rows } = await ask(PAY);
    this.transactions.push(rows[0]?.id);
    await this.afterwards(this.transactions.length);
    return `paid ${reference}`;
  }
}

function ask(sql: string) {
  return (currentTransaction<PoolClient>() as PoolClient).query<{ readonly id: string }>(sql);
}

/** Something that one of the two servers was asked, by the clock of their machine. */
interface Asked {
  readonly at: number;
  readonly what: string;
}

/** What both servers were asked while `work` ran, in order. */
async function askedDuring(work: () => Promise<unknown>): Promise<readonly Asked[]> {
  const asked: Asked[] = [];
  let ended = false;
  const monitor = await observer.monitor();
  monitor.on('monitor', (time: string, [command = '', key = '']: string[], source: string) => {
    ended ||= command.toLowerCase() === 'echo';
    const what = source === 'lua' ? written(command, key) : 'Redis';
    if (!ended && what) asked.push({ at: Number(time) * 1_000, what });
  });
  const before = database.statements().length;
  try {
    await work();
    await observer.echo('end');
    await until(() => ended, 'all that Redis was asked');
  } finally {
    monitor.disconnect();
  }
  for (const { at, sql } of database.statements().slice(before))
    asked.push({ at, what: said(sql) });
  return asked.toSorted((one, other) => one.at - other.at);
}

const whatOf = (asked: readonly Asked[]): readonly string[] => asked.map(({ what }) => what);

/** The same without what scripts change. */
const tripsOf = (asked: readonly Asked[]): readonly string[] =>
  whatOf(asked).filter((what) => !/^(SET|DEL) /.test(what));

/** What a script of the store changes. */
function written(command: string, key: string): string | undefined {
  const [, namespace = ''] = key.split(':');
  const things: Readonly<Record<string, string>> = { rl: 'quota', lock: 'lease', idem: 'claim' };
  return ['SET', 'DEL'].includes(command) ? `${command} ${things[namespace] ?? key}` : undefined;
}

function said(sql: string): string {
  if (sql === PAY) return 'the body';
  if (sql === CONFLICT) return 'a conflict';
  return sql.includes('FOR UPDATE') ? 'FOR UPDATE' : sql;
}

/** One command: a script, and what it changes. */
const ENTER = ['Redis', 'SET quota', 'SET lease', 'SET claim'];
const FIRST_ATTEMPT = ['BEGIN', 'FOR UPDATE', 'the body', 'a conflict', 'ROLLBACK'];
const FAILED_ATTEMPT = ['BEGIN', 'FOR UPDATE', 'the body', 'ROLLBACK'];
const LAST_ATTEMPT = ['BEGIN', 'FOR UPDATE', 'the body', 'COMMIT'];
const LEAVE_DONE = ['Redis', 'DEL lease', 'SET claim'];
const LEAVE_UNDONE = ['Redis', 'DEL lease', 'DEL claim'];

describe('In which order do Redis and Postgres hear of a call?', () => {
  let orders: Orders;
  let rowLock: PgTransactions;

  beforeEach(async () => {
    await observer.flushall();
    await pool.query('TRUNCATE orders; INSERT INTO orders VALUES (1, 0)');
    rowLock = new PgTransactions({ pool: farPool });
    orders = (await bootOnRedis(redis.url, [Orders], { rowLock })).get(Orders);
    // Now the scripts are loaded.
    await orders.pay('another', 'another');
    orders.transactions.length = 0;
  });

  const paid = async (): Promise<unknown> =>
    (await pool.query<{ paid: number }>('SELECT paid FROM orders')).rows[0]?.paid;

  it('enters once, gives each attempt a transaction of its own, and leaves once after the COMMIT', async () => {
    orders.afterwards = async (attempt) => attempt === 1 && ask(CONFLICT);
    let result: unknown;
    const asked = await askedDuring(async () => (result = await orders.pay('acct_1', 'ref_1')));

    expect(result).toBe('paid ref_1');
    expect(whatOf(asked)).toEqual([...ENTER, ...FIRST_ATTEMPT, ...LAST_ATTEMPT, ...LEAVE_DONE]);
    expect(new Set(orders.transactions).size).toBe(2);
    // Of the first attempt nothing is left: once before the test, once in it.
    expect(await paid()).toBe(2);
  });

  it('leaves only when the COMMIT is done', async () => {
    const asked = await askedDuring(() => orders.pay('acct_1', 'ref_1'));
    const commit = asked.find(({ what }) => what === 'COMMIT');
    const leave = asked.filter(({ what }) => what === 'Redis')[1];
    // The log of the database has whole milliseconds, cut off.
    expect((leave?.at ?? Number.NaN) - (commit?.at ?? Number.NaN)).toBeGreaterThanOrEqual(
      COMMIT_MS,
    );
  });

  it('leaves after the ROLLBACK when the body fails, and keeps neither claim nor lease', async () => {
    const error = new Error('no');
    orders.afterwards = () => Promise.reject(error);
    const asked = await askedDuring(() =>
      expect(orders.pay('acct_1', 'ref_1')).rejects.toBe(error),
    );
    expect(whatOf(asked)).toEqual([...ENTER, ...FAILED_ATTEMPT, ...LEAVE_UNDONE]);
  });

  it('leaves after the ROLLBACK when the row is locked by another, and keeps neither claim nor lease', async () => {
    const other = await pool.connect();
    await other.query('BEGIN; SELECT 1 FROM orders FOR SHARE');
    const asked = await askedDuring(() =>
      expect(orders.pay('acct_1', 'ref_1')).rejects.toMatchObject({ code: 'row_locked' }),
    );
    await other.query('ROLLBACK');
    other.release();
    expect(whatOf(asked)).toEqual([...ENTER, 'BEGIN', 'FOR UPDATE', 'ROLLBACK', ...LEAVE_UNDONE]);
    await expect(orders.pay('acct_1', 'ref_1')).resolves.toBe('paid ref_1');
  });

  it('asks Postgres nothing for a duplicate', async () => {
    await orders.pay('acct_1', 'ref_1');
    const asked = await askedDuring(() =>
      expect(orders.pay('acct_1', 'ref_1')).resolves.toBe('paid ref_1'),
    );
    expect(tripsOf(asked)).toEqual(['Redis']);
  });

  it('asks Postgres nothing for a call that finds the lease taken', async () => {
    let asked: readonly Asked[] = [];
    orders.afterwards = async () => {
      orders.afterwards = async () => undefined;
      asked = await askedDuring(() =>
        expect(orders.pay('acct_1', 'ref_2')).rejects.toMatchObject({ code: 'busy' }),
      );
    };
    await orders.pay('acct_1', 'ref_1');
    expect(tripsOf(asked)).toEqual(['Redis']);
  });
});

/** What each library says at both ends; who does not hear what a COMMIT came to asks before it. */
const STATEMENTS: Readonly<Record<string, { begin: string; commit: readonly string[] }>> = {
  pg: { begin: 'BEGIN', commit: ['COMMIT'] },
  TypeORM: { begin: 'START TRANSACTION', commit: ['SELECT 1', 'COMMIT'] },
  Prisma: { begin: 'BEGIN', commit: ['SELECT 1', 'COMMIT'] },
};

describe.each(Object.keys(ROW_LOCK_ADAPTERS))('How often is Postgres asked through %s?', (name) => {
  let adapter: RowLockAdapter;

  beforeAll(async () => {
    const url = await database.createDatabase();
    const client = new Client({ connectionString: url });
    await client.connect();
    await client.query(PRISMA_TABLES);
    await client.query('INSERT INTO invoices (invoice_no, amount_cents) VALUES (1, 5), (2, 5)');
    await client.end();
    adapter = await (ROW_LOCK_ADAPTERS[name] as (at: string) => Promise<RowLockAdapter>)(url);
  }, 60_000);

  afterAll(() => adapter.close());

  it('to begin, to lock, to read for those who want the row, and to commit', async () => {
    @Injectable()
    class Invoices {
      @WithRowLock(adapter.invoices, arg(0))
      async touch(_id: number): Promise<void> {}

      @WithRowLock(adapter.invoices, arg(0))
      async read(_id: number, @LockedRow() row?: object): Promise<unknown> {
        return row && adapter.status(row);
      }

      @WithRowLock(adapter.invoices, () => [1, 2], { wait: 0 })
      async touchBoth(): Promise<void> {}
    }
    const app = await boot({ providers: [Invoices] }, { rowLock: adapter.transactions });
    const invoices = app.get(Invoices);
    await invoices.touch(1);
    const { begin, commit } = STATEMENTS[name] as (typeof STATEMENTS)[string];
    const locked = [begin, 'FOR UPDATE', ...commit];
    expect(tripsOf(await askedDuring(() => invoices.touch(1)))).toEqual(locked);
    expect(tripsOf(await askedDuring(() => invoices.touchBoth()))).toEqual(locked);
    const reading = [begin, 'FOR UPDATE', expect.stringMatching(/^SELECT .*invoices/), ...commit];
    expect(tripsOf(await askedDuring(() => invoices.read(1)))).toEqual(reading);
  });
});
