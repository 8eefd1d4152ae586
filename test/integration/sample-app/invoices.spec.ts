import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { raceWith } from 'nestjs-cmdx/testing';
import { Client } from 'pg';
import { type PostgresServer, startPostgres } from '../../support/postgres-server.js';
import { borrowRedis } from '../../support/redis-server.js';
import { type SampleAnswer, type SampleApp, startSampleApp } from '../../support/sample-app.js';
import { settledWithin, until } from '../../support/time.js';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres();
}, 60_000);
afterAll(() => server.stop());

const PAID = { status: 201, body: { invoice: 'inv-1', paid: 1_200 } };
const ALREADY_PAID = {
  status: 422,
  body: {
    statusCode: 422,
    error: 'Unprocessable Entity',
    message: 'This invoice is paid.',
    code: 'already_paid',
  },
};

const pay = (app: SampleApp, id = 'inv-1') => app.post(`/invoices/${id}/pay`);

/** Twenty requests at once, spread over the applications. @returns the answers, the one that is paid first */
async function payAtOnce(apps: readonly SampleApp[], id?: string): Promise<SampleAnswer[]> {
  const race = await raceWith(20, (position) => pay(apps[position % apps.length] as SampleApp, id));
  const answers = race.map((each) => {
    if (each.status === 'rejected') throw each.reason;
    return each.value;
  });
  return answers.toSorted((a, b) => a.status - b.status);
}

/** Asks a database past the application. */
async function within<T>(url: string, ask: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return await ask(client);
  } finally {
    await client.end();
  }
}

const paymentsAt = (url: string): Promise<unknown[]> =>
  within(url, async (client) => (await client.query('SELECT * FROM payments')).rows as unknown[]);

/** Until somebody waits for a row at that database. */
const untilSomebodyWaits = (client: Client): Promise<void> =>
  until(async () => {
    const waiting =
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    return (await client.query(waiting)).rows.length > 0;
  }, 'somebody who waits for the row');

describe('without a database, does the sample application', () => {
  let app: SampleApp;

  beforeAll(async () => {
    app = await startSampleApp();
  }, 30_000);
  afterAll(() => app.stop());

  it('say what is missing and what to type, and go on with the rest?', async () => {
    const missing = {
      status: 503,
      body: {
        statusCode: 503,
        error: 'Service Unavailable',
        message: expect.stringContaining('DATABASE_URL=postgres://localhost/shop npm start'),
      },
    };
    expect(await pay(app)).toMatchObject(missing);
    expect(await app.get('/invoices/inv-1')).toMatchObject(missing);
    expect(await app.post('/warehouse/well')).toMatchObject({ status: 200 });
    expect(await app.get('/inventory/A-1')).toMatchObject({ status: 200, body: { quantity: 12 } });
  });
});

describe('with a database, does POST /invoices/:id/pay of the sample application', () => {
  let url: string;
  let app: SampleApp;

  beforeAll(async () => {
    url = await server.createDatabase();
    app = await startSampleApp(undefined, url);
  }, 30_000);
  afterAll(() => app.stop());

  it('pay an invoice once, of twenty requests at once, and tell the others?', async () => {
    expect(await app.get('/invoices/inv-1')).toMatchObject({
      status: 200,
      body: { id: 'inv-1', amount: 1_200, status: 'new', payments: [] },
    });
    const [paid, ...others] = await payAtOnce([app]);
    expect(paid).toMatchObject(PAID);
    expect(others).toHaveLength(19);
    for (const other of others) expect(other).toMatchObject(ALREADY_PAID);
    expect(await paymentsAt(url)).toEqual([{ invoice_id: 'inv-1', amount: 1_200 }]);
    expect((await app.get('/invoices/inv-1')).body).toEqual({
      id: 'inv-1',
      amount: 1_200,
      status: 'paid',
      payments: [1_200],
    });
  }, 15_000);

  it('answer 404 for an invoice that there is none of, told by the row lock or by a read?', async () => {
    const { status, body } = await pay(app, 'inv-9');
    expect([status, body]).toEqual([
      404,
      {
        statusCode: 404,
        error: 'Not Found',
        message: 'There is no such record.',
        code: 'row_missing',
      },
    ]);
    expect(await app.get('/invoices/inv-9')).toMatchObject({
      status: 404,
      body: { message: 'There is no invoice inv-9.' },
    });
  });

  it('show an invoice at once that somebody is changing, and pay it as it was left?', async () => {
    await within(url, async (client) => {
      await client.query("BEGIN; UPDATE invoices SET amount = 81 WHERE id = 'inv-2'");
      const payment = pay(app, 'inv-2');
      await untilSomebodyWaits(client);
      expect((await settledWithin(1_000, app.get('/invoices/inv-2'))).body).toMatchObject({
        amount: 80,
        status: 'new',
      });
      await client.query('COMMIT');
      expect(await payment).toMatchObject({ status: 201, body: { invoice: 'inv-2', paid: 81 } });
    });
  });

  it('go on after a connection was lost that nobody used?', async () => {
    const ended = await within(url, (client) =>
      client.query(
        'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
      ),
    );
    const lost = () => app.output().split('A connection was lost').length - 1;
    await until(() => lost() === ended.rowCount, 'a warning for each');
    expect(lost()).toBeGreaterThan(0);
    expect(await pay(app)).toMatchObject(ALREADY_PAID);
  });

  it('fail while the database is down, and go on when it is back?', async () => {
    await server.kill();
    expect(await pay(app)).toMatchObject({
      status: 500,
      body: { statusCode: 500, message: 'Internal server error' },
    });
    expect(await app.post('/warehouse/well')).toMatchObject({ status: 200 });
    await server.restart();
    expect(await pay(app)).toMatchObject(ALREADY_PAID);
  }, 30_000);
});

it('do twenty replicas that start at once on an empty database make its tables together?', async () => {
  const before = process.env['DATABASE_URL'];
  process.env['DATABASE_URL'] = await server.createDatabase();
  const { Database } = await import('../../../sample-app/database/database.js');
  if (before === undefined) delete process.env['DATABASE_URL'];
  else process.env['DATABASE_URL'] = before;
  const replicas = Array.from({ length: 20 }, () => new Database());
  try {
    const race = await raceWith(20, (position) => replicas[position]?.onModuleInit());
    expect(race.filter(({ status }) => status === 'rejected')).toEqual([]);
  } finally {
    await Promise.all(replicas.map((replica) => replica.onApplicationShutdown()));
  }
}, 15_000);

describe('on one Redis and one database, do two processes of the sample application', () => {
  let redis: Awaited<ReturnType<typeof borrowRedis>>;
  let url: string;
  let apps: readonly SampleApp[];

  beforeAll(async () => {
    redis = await borrowRedis();
    url = await server.createDatabase();
    apps = await Promise.all([startSampleApp(redis.url, url), startSampleApp(redis.url, url)]);
  }, 30_000);
  afterAll(async () => {
    await Promise.all(apps.map((app) => app.stop()));
    await redis.stop();
  });

  it('pay an invoice once, of twenty requests at once?', async () => {
    const [paid, ...others] = await payAtOnce(apps);
    expect(paid).toMatchObject(PAID);
    for (const other of others) expect(other).toMatchObject(ALREADY_PAID);
    expect(await paymentsAt(url)).toHaveLength(1);
  }, 15_000);

  it('keep their leases in Redis as well?', async () => {
    const path = `/accounts/${process.pid}-${performance.timeOrigin}/reconcile`;
    const answers = await Promise.all(apps.map((app) => app.post(path)));
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409]);
  }, 15_000);

  it('finish a payment when they are asked to end, and then end by themselves?', async () => {
    await within(url, async (client) => {
      await client.query("BEGIN; SELECT FROM invoices WHERE id = 'inv-2' FOR UPDATE");
      const payment = pay(apps[0] as SampleApp, 'inv-2');
      await untilSomebodyWaits(client);
      const ends = Promise.all(apps.map((app) => app.stop()));
      await client.query('COMMIT');
      expect(await payment).toMatchObject({ status: 201, body: { paid: 80 } });
      expect(await settledWithin(5_000, ends)).toEqual(['SIGTERM', 'SIGTERM']);
      const { rows } = await client.query("SELECT amount FROM payments WHERE invoice_id = 'inv-2'");
      expect(rows).toEqual([{ amount: 80 }]);
    });
  }, 15_000);
});

it('does the sample application not start without the database that it is told, and say which one, but not its password?', async () => {
  const refused = await startSampleApp(undefined, 'postgres://ada:s3cret@127.0.0.1:1/shop').then(
    () => 'it has started',
    (error: Error) => error.message,
  );
  expect(refused).toContain('the sample application ended with 1:');
  expect(refused).toMatch(
    /The database at 127\.0\.0\.1:1 cannot be used \(.*ECONNREFUSED.*\)\. Correct DATABASE_URL, or start without it\./,
  );
  expect(refused).not.toContain('s3cret');
}, 30_000);
