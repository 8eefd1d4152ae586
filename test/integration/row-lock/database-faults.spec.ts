import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable, type Type } from '@nestjs/common';
import { once } from 'node:events';
import { type LookupFunction, Socket } from 'node:net';
import { types } from 'node:util';
import {
  arg,
  currentTransaction,
  IdempotencyRecords,
  IdempotentBy,
  RetryOn,
  RowLockConflictError,
  RowLocks,
  skip,
  SystemClock,
  TransactionAbortedError,
  TransactionInDoubtError,
  WithRowLock,
} from 'nestjs-cmdx';
import { PgTransactions } from 'nestjs-cmdx/row-lock';
import { Pool, type PoolClient } from 'pg';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { type PostgresServer, startPostgres } from '../../support/postgres-server.js';
import { PRISMA_TABLES } from '../../support/prisma-client.js';
import {
  type OpenRowLockAdapter,
  ROW_LOCK_ADAPTERS,
  type RowLockAdapter,
  type RowLockAdapterOptions,
} from '../../support/row-lock-adapters.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { settledWithin, until } from '../../support/time.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
// An 'error' event that nobody listens to fails a test by itself.
refuseUnhandledRejections();

const PAY = "UPDATE invoices SET invoice_status = 'paid' WHERE invoice_no = 1";

let server: PostgresServer;
let url: string;
let observer: Pool;

beforeAll(async () => {
  server = await startPostgres();
  url = await server.createDatabase();
  observer = new Pool({ connectionString: url });
  observer.on('error', () => undefined);
  await observer.query(PRISMA_TABLES);
}, 60_000);

afterAll(async () => {
  await observer.end();
  await server.stop();
});

beforeEach(async () => {
  await observer.query(
    'TRUNCATE invoices, payments; INSERT INTO invoices (invoice_no, amount_cents) VALUES (1, 5), (2, 5)',
  );
});

const statusOf = async (id: number): Promise<unknown> => {
  const text = 'SELECT invoice_status FROM invoices WHERE invoice_no = $1';
  return (await observer.query<{ invoice_status: string }>(text, [id])).rows[0]?.invoice_status;
};

interface Invoices {
  runs: number;
  pay(reference: string, afterwards?: () => Promise<unknown>): Promise<string>;
}

/** A method that pays under a row lock, once per reference. */
function invoicesOn(adapter: RowLockAdapter): Type<Invoices> {
  @Injectable()
  class InvoicesOfLibrary implements Invoices {
    runs = 0;

    @IdempotentBy(arg(0), { name: 'invoices' })
    @WithRowLock(adapter.invoices, () => 1)
    async pay(_reference: string, afterwards?: () => Promise<unknown>): Promise<string> {
      this.runs += 1;
      await adapter.ask(PAY);
      await afterwards?.();
      return 'paid';
    }
  }
  return InvoicesOfLibrary;
}

/** Connects to a host of several addresses, as `localhost` is on many a machine. */
function socketToSeveral(): Socket {
  const socket = new Socket();
  const connect = socket.connect.bind(socket);
  const addresses = ['127.0.0.1', '127.0.0.2'].map((address) => ({ address, family: 4 }));
  const lookup: LookupFunction = (_host, _options, found) => found(null, addresses);
  return Object.assign(socket, {
    connect: (port: number) => connect({ port, host: 'database', lookup, autoSelectFamily: true }),
  });
}

/** How the database lets down a body that is in the middle of its work. */
const FAULTS: Readonly<Record<string, () => Promise<unknown>>> = {
  'its server is killed': () => server.kill(),
  'its connection is ended': () =>
    observer.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'",
    ),
};

describe.each(Object.keys(ROW_LOCK_ADAPTERS))('When the database lets %s down,', (name) => {
  let adapter: RowLockAdapter;
  let app: Application;
  let invoices: Invoices;

  /** Has one connection to give: who does not give it back is noticed by the next call. */
  async function start(at: string, options: RowLockAdapterOptions = {}): Promise<void> {
    const open = ROW_LOCK_ADAPTERS[name] as OpenRowLockAdapter;
    adapter = await open(at, { ...options, pool: { max: 1, ...options.pool } });
    const service = invoicesOn(adapter);
    app = await boot({ providers: [service] }, { rowLock: adapter.transactions });
    invoices = app.get(service);
  }

  afterEach(() => adapter?.close());

  const claimOf = async (reference: string): Promise<unknown> =>
    (await app.get(IdempotencyRecords).inspect(`cmdx:idem:invoices:${reference}`))?.state;

  async function failureOf(call: Promise<unknown>): Promise<Error> {
    const error: unknown = await settledWithin(5_000, call).catch((thrown: unknown) => thrown);
    // Errors of Node are none of the test environment's class.
    expect(types.isNativeError(error)).toBe(true);
    expect((error as Error).message).toMatch(/\w/);
    return error as Error;
  }

  const EVERY_WAY = Object.keys(FAULTS).flatMap((fault) =>
    ['asks again', 'commits'].map((next) => [fault, next] as const),
  );

  it.each(EVERY_WAY)(
    'and %s before the body %s, nothing is saved, and the next call is as good as any',
    async (fault, next) => {
      await start(url);
      const call = invoices.pay('ref_1', async () => {
        await FAULTS[fault]?.();
        if (next === 'asks again') await adapter.ask(PAY);
      });
      await failureOf(call).finally(() => fault.includes('killed') && server.restart());
      expect(await statusOf(1)).toBe('open');
      await expect(settledWithin(5_000, invoices.pay('ref_2'))).resolves.toBe('paid');
      expect(await statusOf(1)).toBe('paid');
    },
  );

  it('and its connection is ended while the body waits for an answer, nothing is saved, and the claim is dropped', async () => {
    await start(url);
    const end =
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
    const error = await failureOf(
      invoices.pay('ref_1', () =>
        Promise.all([
          adapter.ask('SELECT pg_sleep(60)::text'),
          until(async () => (await observer.query(end)).rowCount === 1, 'the question'),
        ]),
      ),
    );
    expect(error.message).toMatch(/terminat/);
    expect(await statusOf(1)).toBe('open');
    await expect(settledWithin(5_000, invoices.pay('ref_1'))).resolves.toBe('paid');
  });

  it.each([
    ['at its address', {}],
    ['at each of its addresses', { stream: socketToSeveral }],
  ])(
    'and is down %s when the call begins, the body never runs, and the claim is dropped',
    async (_where, settings) => {
      await start(url, { pool: settings });
      await server.kill();
      const error = await failureOf(invoices.pay('ref_1')).finally(() => server.restart());
      expect(error.message).toMatch(/ECONNREFUSED|Can't reach|terminated/);
      expect(invoices.runs).toBe(0);
      expect(await claimOf('ref_1')).toBeUndefined();
      await expect(settledWithin(5_000, invoices.pay('ref_1'))).resolves.toBe('paid');
    },
  );

  it('and the answer to COMMIT is lost, that is said, and nobody does the work again', async () => {
    const proxy = await TcpProxy.start(server.port);
    const there = new URL(url);
    there.port = String(proxy.port);
    await start(String(there));
    await invoices.pay('ref_0');
    await observer.query("UPDATE invoices SET invoice_status = 'open'");

    const call = invoices.pay('ref_1', async () => proxy.loseReplyTo('COMMIT'));
    expect(await failureOf(call)).toBeInstanceOf(TransactionInDoubtError);
    await until(async () => (await statusOf(1)) === 'paid', 'the COMMIT');
    await app.clock.advance('10m');
    await expect(invoices.pay('ref_1')).rejects.toMatchObject({ code: 'abandoned' });
    expect(invoices.runs).toBe(2);
    await expect(settledWithin(5_000, invoices.pay('ref_2'))).resolves.toBe('paid');
    await proxy.stop();
  });
});

/** Libraries whose pool may be told `query_timeout`; README says why Prisma's may not. */
describe.each(['pg', 'TypeORM'])('A database that stands still is not waited for by %s', (name) => {
  const BOUND_MS = 200;
  let adapter: RowLockAdapter;
  let locks: RowLocks;

  beforeEach(async () => {
    const pool = { max: 1, query_timeout: BOUND_MS, connectionTimeoutMillis: BOUND_MS };
    adapter = await (ROW_LOCK_ADAPTERS[name] as OpenRowLockAdapter)(url, { pool });
    locks = (await boot({}, { rowLock: adapter.transactions })).get(RowLocks);
  });

  afterEach(async () => {
    server.thaw();
    await adapter.close();
  });

  const failsInTime = async (call: Promise<unknown>): Promise<void> =>
    // One bound for what was asked, one for the ROLLBACK.
    expect(settledWithin(2 * BOUND_MS + 300, call)).rejects.toThrow(/timeout/);

  it('when a transaction is to begin, on a connection that is there or a new one', async () => {
    await locks.withLock(adapter.invoices, 1, () => 'warm');
    server.freeze();
    let runs = 0;
    const call = (): Promise<unknown> => locks.withLock(adapter.invoices, 1, () => (runs += 1));
    await failsInTime(call());
    await failsInTime(call());
    expect(runs).toBe(0);
  });

  it('when a row is to be locked, and what the body did before is not saved by the next call', async () => {
    const call = locks.withLock(adapter.invoices, 1, async () => {
      await adapter.ask(PAY);
      server.freeze();
      await locks.lock(adapter.invoices, 2);
    });
    await failsInTime(call);
    server.thaw();
    await settledWithin(
      5_000,
      locks.withLock(adapter.invoices, 2, () => 'locked'),
    );
    expect(await statusOf(1)).toBe('open');
  });
});

describe('A connection of pg that is lost', () => {
  let pool: Pool;
  let lost: Error[];
  let locks: RowLocks;

  beforeEach(async () => {
    lost = [];
    pool = new Pool({ connectionString: url, max: 1 });
    pool.on('error', (error) => lost.push(error));
    locks = (await boot({}, { rowLock: new PgTransactions({ pool }) })).get(RowLocks);
  });

  afterEach(() => pool.end());

  const LOCKED = { table: 'invoices', key: 'invoice_no' };

  it('and known to be before COMMIT leaves no doubt that nothing was saved', async () => {
    const call = locks.withLock(LOCKED, 1, async (_row, client: PoolClient) => {
      await client.query(PAY);
      const told = once(client, 'error');
      await FAULTS['its connection is ended']?.();
      await told;
    });
    await expect(call).rejects.toBeInstanceOf(TransactionAbortedError);
    expect(await statusOf(1)).toBe('open');
    expect([pool.totalCount, pool.waitingCount]).toEqual([0, 0]);
    // It was in use: its user was told, and the pool has nothing to add.
    expect(lost).toEqual([]);
  });

  it('while nobody uses it is the pool to tell of, and replaced for the next call', async () => {
    await locks.withLock(LOCKED, 1, () => 'locked');
    const end =
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()';
    await observer.query(end);
    await until(() => lost.length > 0, 'the word of the pool');
    await expect(locks.withLock(LOCKED, 1, () => 'locked')).resolves.toBe('locked');
  });
});

/** Pays, and so does whoever has `RetryOn` once more when others were in the way. */
function payingOn(adapter: RowLockAdapter) {
  @Injectable()
  class Paying {
    /** Attempts that have come to the end of the body. */
    ended = 0;
    /** What happens once, in the middle of the work. */
    meanwhile: () => Promise<unknown> = async () => undefined;

    @WithRowLock(adapter.invoices, () => 1)
    async once(): Promise<string> {
      return this.#pay();
    }

    @RetryOn(RowLockConflictError, { limit: 1, delay: '1ms' })
    @WithRowLock(adapter.invoices, () => 1)
    async twice(): Promise<string> {
      return this.#pay();
    }

    async #pay(): Promise<string> {
      await adapter.ask('SELECT sum(amount_cents)::text FROM invoices');
      await adapter.ask(PAY);
      const { meanwhile } = this;
      this.meanwhile = async () => undefined;
      await meanwhile();
      this.ended += 1;
      return 'paid';
    }
  }
  return Paying;
}

const LEVELS = ['repeatable read', 'serializable'] as const;
const ISOLATED = Object.keys(ROW_LOCK_ADAPTERS).flatMap((name) =>
  LEVELS.map((level) => [name, level] as const),
);

describe.each(ISOLATED)(
  'Through %s, a transaction that is isolated by %s',
  (name, isolationLevel) => {
    let adapter: RowLockAdapter;
    let paying: InstanceType<ReturnType<typeof payingOn>>;
    let other: PoolClient;

    beforeEach(async () => {
      adapter = await (ROW_LOCK_ADAPTERS[name] as OpenRowLockAdapter)(url, { isolationLevel });
      const service = payingOn(adapter);
      const rowLock = adapter.transactions;
      const app = await boot({ providers: [service] }, { rowLock, clock: new SystemClock() });
      paying = app.get(service);
      other = await observer.connect();
    });

    afterEach(async () => {
      other.release();
      await adapter.close();
    });

    /** Calls while another has changed the row and not committed yet; then that one commits. */
    async function callDuringChange(call: () => Promise<unknown>): Promise<unknown> {
      await other.query('BEGIN; UPDATE invoices SET amount_cents = 6 WHERE invoice_no = 1');
      const called = call().catch((error: unknown) => error);
      const waiting =
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
      await until(async () => (await observer.query(waiting)).rowCount === 1, 'a call that waits');
      await other.query('COMMIT');
      return called;
    }

    it('is in conflict with a change that was committed while it waited', async () => {
      const error = await callDuringChange(() => paying.once());
      expect(error).toBeInstanceOf(RowLockConflictError);
      expect(error).toMatchObject({ metadata: { code: 'row_conflict', sqlState: '40001' } });
      expect([paying.ended, await statusOf(1)]).toEqual([0, 'open']);
    });

    it('succeeds when it is begun anew', async () => {
      expect(await callDuringChange(() => paying.twice())).toBe('paid');
      expect([paying.ended, await statusOf(1)]).toEqual([1, 'paid']);
    });

    if (isolationLevel !== 'serializable') return;

    /** Reads what the call has changed, changes what the call has read, and commits first. */
    const crosswise = (): Promise<unknown> =>
      other.query(
        `BEGIN ISOLATION LEVEL SERIALIZABLE;
       SELECT sum(amount_cents) FROM invoices;
       UPDATE invoices SET amount_cents = 6 WHERE invoice_no = 2;
       COMMIT`,
      );

    it('may be in conflict only when it commits', async () => {
      paying.meanwhile = crosswise;
      await expect(paying.once()).rejects.toBeInstanceOf(RowLockConflictError);
      expect([paying.ended, await statusOf(1)]).toEqual([1, 'open']);
    });

    it('succeeds then as well when it is begun anew', async () => {
      paying.meanwhile = crosswise;
      await expect(paying.twice()).resolves.toBe('paid');
      expect([paying.ended, await statusOf(1)]).toEqual([2, 'paid']);
    });
  },
);

describe('After 1,000 calls through pg that end in every way', () => {
  const RUNS = 1_000;
  const AT_ONCE = 20;
  const TABLE = { table: 'invoices', key: 'invoice_no' };

  @Injectable()
  class Skipping {
    @WithRowLock(TABLE, () => 1)
    async skips(): Promise<string | undefined> {
      return skip('not now');
    }
  }

  it('no connection, transaction, lock, listener or setting is left behind', async () => {
    const pool = new Pool({ connectionString: url, max: 10 });
    const rowLock = new PgTransactions({ pool });
    const app = await boot({ providers: [Skipping] }, { rowLock });
    const locks = app.get(RowLocks);
    const holder = await observer.connect();
    await holder.query('BEGIN; SELECT 1 FROM invoices WHERE invoice_no = 2 FOR UPDATE');
    const ask = (sql: string) => (currentTransaction<PoolClient>() as PoolClient).query(sql);
    const busy = (): Promise<unknown> => locks.withLock(TABLE, 2, () => 'run', { wait: 0 });
    const settled = (call: Promise<unknown>): Promise<unknown> => call.catch(() => undefined);
    const conflict = "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$";
    // What a call does, and what it ends with.
    const ways: readonly (readonly [string, () => Promise<unknown>])[] = [
      ['paid', () => locks.withLock(TABLE, 1, async () => (await ask(PAY)) && 'paid')],
      ['a fault', () => locks.withLock(TABLE, 1, () => Promise.reject(new Error('a fault')))],
      ['nothing', async () => (await app.get(Skipping).skips()) ?? 'nothing'],
      ['22012', () => locks.withLock(TABLE, 1, () => ask('SELECT 1 / 0'))],
      ['row_locked', busy],
      ['row_locked', () => locks.withLock(TABLE, [2], () => 'run', { lockFree: true })],
      ['row_locked', () => locks.withLock(TABLE, 2, () => 'run', { wait: '1ms' })],
      ['row_missing', () => locks.withLock(TABLE, 99, () => 'run')],
      ['row_conflict', () => locks.withLock(TABLE, 1, () => ask(conflict))],
      ['key_invalid', () => locks.withLock(TABLE, 'one', () => 'run')],
      ['joined', () => locks.withLock(TABLE, 1, () => locks.withLock(TABLE, 1, () => 'joined'))],
      ['anyway', () => locks.withLock(TABLE, 1, async () => (await settled(busy()), 'anyway'))],
      ['transaction_aborted', () => locks.withLock(TABLE, 1, () => settled(ask('SELECT 1 / 0')))],
    ];
    let started = 0;
    const worker = async (): Promise<void> => {
      while (started < RUNS) {
        const [end, call] = ways[started++ % ways.length] as (typeof ways)[number];
        const told = await call().catch(
          (error: { code?: string; message: string }) => error.code ?? error.message,
        );
        expect(told).toBe(end);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));

    await holder.query('ROLLBACK');
    holder.release();
    expect([pool.totalCount, pool.idleCount, pool.waitingCount]).toEqual([10, 10, 0]);
    const others = 'datname = current_database() AND pid <> pg_backend_pid()';
    const open = await observer.query(
      `SELECT state, query FROM pg_stat_activity WHERE ${others} AND state <> 'idle'`,
    );
    expect(open.rows).toEqual([]);
    const held = await observer.query(
      `SELECT locktype, mode FROM pg_locks WHERE pid <> pg_backend_pid() AND pid IN (SELECT pid FROM pg_stat_activity WHERE ${others})`,
    );
    expect(held.rows).toEqual([]);
    const clients = await Promise.all(Array.from({ length: 10 }, () => pool.connect()));
    for (const client of clients) {
      // The pool itself listens only while nobody uses it.
      expect([client.listenerCount('error'), client.listenerCount('notice')]).toEqual([0, 0]);
      expect((await client.query('SHOW lock_timeout')).rows).toEqual([{ lock_timeout: '0' }]);
      client.release();
    }
    await pool.end();
  }, 20_000);
});
