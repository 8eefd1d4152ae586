import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { fileURLToPath } from 'node:url';
import { Pool } from 'pg';
import { borrowPostgres, type PostgresDatabases } from '../../support/postgres-server.js';
import { PRISMA_TABLES } from '../../support/prisma-client.js';
import { startWorker } from '../../support/processes.js';

// In a process of its own, as in an application: Jest cannot load nestjs-cls beside a Nest of ES
// modules. What is asked of every adapter is asked of these two in adapters.spec.ts.
const WORKER = fileURLToPath(new URL('cls-worker.ts', import.meta.url));
let databases: PostgresDatabases;

beforeAll(async () => {
  databases = await borrowPostgres();
}, 60_000);

afterAll(() => databases.stop());

it.each(['typeorm', 'prisma'])(
  'do row locks and @Transactional() of nestjs-cls share a transaction, over %s?',
  async (library) => {
    const url = await databases.createDatabase();
    const pool = new Pool({ connectionString: url });
    try {
      await pool.query(PRISMA_TABLES);
      await pool.query(
        "INSERT INTO invoices (invoice_no, amount_cents, invoice_status) SELECT id, 5, 'new' FROM generate_series(1, 5) id",
      );
      const other = await pool.connect();
      await other.query('BEGIN; SELECT 1 FROM invoices WHERE invoice_no = 4 FOR UPDATE');
      const answers: unknown = await startWorker(WORKER, [library, url]).next();
      await other.query('ROLLBACK');
      other.release();
      expect(answers).toEqual({
        paid: { status: 'new', same: true },
        failed: 'no',
        within: 'no',
        busyWithin: 'row_locked',
      });
      // What was committed: not what its owner has rolled back, whichever of the two that was.
      const { rows } = await pool.query<{ invoice_no: number }>(
        "SELECT invoice_no FROM invoices WHERE invoice_status = 'paid' ORDER BY invoice_no",
      );
      expect(rows.map(({ invoice_no }) => invoice_no)).toEqual([1, 5]);
    } finally {
      await pool.end();
    }
  },
  60_000,
);
