import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable, type Type } from '@nestjs/common';
import { type LookupFunction, Socket } from 'node:net';
import { types } from 'node:util';
import {
  arg,
  IdempotencyRecords,
  IdempotentBy,
  RowLocks,
  TransactionInDoubtError,
  WithRowLock,
} from 'nestjs-cmdx';
import { Pool } from 'pg';
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
