import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type Duration, RowLockedError, RowLocks } from 'nestjs-cmdx';
import { Pool, type PoolClient } from 'pg';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { CLS_ADAPTERS } from '../../support/cls-adapters.js';
import { borrowPostgres, type PostgresDatabases } from '../../support/postgres-server.js';
import { PRISMA_TABLES } from '../../support/prisma-client.js';
import { ROW_LOCK_ADAPTERS, type RowLockAdapter } from '../../support/row-lock-adapters.js';

closeApplicationsAfterEach();

const BOUND_MS = 200;
const BOUND = `${BOUND_MS}ms` as const;
const GRACE_MS = 150;

let databases: PostgresDatabases;

beforeAll(async () => {
  databases = await borrowPostgres();
}, 60_000);

afterAll(() => databases.stop());

describe.each(Object.entries({ ...ROW_LOCK_ADAPTERS, ...CLS_ADAPTERS }))(
  'how long does a call wait for a row that is locked, through %s?',
  (_name, open) => {
    let pool: Pool;
    let other: PoolClient;
    let adapter: RowLockAdapter;

    beforeAll(async () => {
      const url = await databases.createDatabase();
      pool = new Pool({ connectionString: url });
      await pool.query(PRISMA_TABLES);
      await pool.query('INSERT INTO invoices (invoice_no, amount_cents) VALUES (1, 5), (2, 5)');
      adapter = await open(url);
      other = await pool.connect();
      await other.query('BEGIN; SELECT 1 FROM invoices WHERE invoice_no = 1 FOR UPDATE');
    }, 60_000);

    afterAll(async () => {
      other.release(true);
      await adapter.close();
      await pool.end();
    });

    /**
     * How long a call takes that is refused, as its caller sees it. What the machine does beside is
     * not the call's: where it takes too long it is asked again.
     */
    async function refusedAfter(
      locks: RowLocks,
      wait: Duration,
      id: number | number[],
    ): Promise<number> {
      const bound = wait === 0 ? 0 : BOUND_MS;
      for (let attempt = 1; ; attempt += 1) {
        const since = performance.now();
        const error = await locks
          .withLock(adapter.invoices, id as number, () => 'locked', {
            wait,
          })
          .catch((thrown: unknown) => thrown);
        const took = performance.now() - since;
        expect(error).toBeInstanceOf(RowLockedError);
        const { waitedMs } = (error as RowLockedError).metadata;
        expect(waitedMs).toBeLessThanOrEqual(took);
        // The clock of the database and that of this process count from different moments.
        expect(waitedMs).toBeGreaterThanOrEqual(bound - 1);
        if (took < bound + GRACE_MS || attempt === 3) return took;
      }
    }

    const locksHere = async () => (await boot({}, { rowLock: adapter.transactions })).get(RowLocks);

    it.each([
      ['one row', 1],
      ['several rows', [2, 1]],
    ])(
      'not at all where it may not, else as long as it may and hardly longer: %s',
      async (_what, id) => {
        const locks = await locksHere();
        expect(await refusedAfter(locks, 0, id)).toBeLessThan(GRACE_MS);
        expect(await refusedAfter(locks, BOUND, id)).toBeLessThan(BOUND_MS + GRACE_MS);
      },
    );

    it('the same in a transaction that is joined, each time anew', async () => {
      const locks = await locksHere();
      await locks.withLock(adapter.invoices, 2, async () => {
        expect(await refusedAfter(locks, BOUND, 1)).toBeLessThan(BOUND_MS + GRACE_MS);
        expect(await refusedAfter(locks, 0, 1)).toBeLessThan(GRACE_MS);
        expect(await refusedAfter(locks, BOUND, 1)).toBeLessThan(BOUND_MS + GRACE_MS);
      });
    });
  },
);
