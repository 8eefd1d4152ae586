import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { RowLocks } from 'nestjs-cmdx';
import { Pool } from 'pg';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { crosswise, inOneRequest, inTheOrderNamed } from '../../support/crosswise.js';
import { type PostgresServer, startPostgres } from '../../support/postgres-server.js';
import { PRISMA_TABLES } from '../../support/prisma-client.js';
import {
  type OpenRowLockAdapter,
  ROW_LOCK_ADAPTERS,
  type RowLockAdapter,
} from '../../support/row-lock-adapters.js';

closeApplicationsAfterEach();

describe('When half of the callers ask for [a, b] and half for [b, a],', () => {
  let server: PostgresServer;
  let pool: Pool;
  let adapter: RowLockAdapter;

  beforeAll(async () => {
    // A deadlock is told soon.
    server = await startPostgres({ settings: { deadlock_timeout: '20ms' } });
    const url = await server.createDatabase();
    pool = new Pool({ connectionString: url });
    await pool.query(PRISMA_TABLES);
    adapter = await (ROW_LOCK_ADAPTERS['pg'] as OpenRowLockAdapter)(url);
  }, 60_000);

  afterAll(async () => {
    await adapter.close();
    await pool.end();
    await server.stop();
  });

  const locksOf = async (): Promise<RowLocks> =>
    (await boot({}, { rowLock: adapter.transactions })).get(RowLocks);

  it('nobody is refused, and no two are at work together', async () => {
    const take = inOneRequest(adapter, await locksOf());
    const { bodies, ...rest } = await crosswise(adapter, take, pool, 2_000);
    expect(rest).toEqual({ counted: [bodies, bodies], together: 0, errors: {} });
    expect(bodies).toBeGreaterThan(20);
  }, 30_000);

  it('who takes one after the other runs into a deadlock', async () => {
    const take = inTheOrderNamed(adapter, await locksOf());
    const { errors } = await crosswise(
      adapter,
      take,
      pool,
      10_000,
      (report) => Object.keys(report.errors).length > 0,
    );
    expect(Object.keys(errors)).toEqual(['row_conflict 40P01']);
  }, 30_000);
});
