import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { CmdxModule, RowLocks } from 'nestjs-cmdx';
import { Pool } from 'pg';
import { crosswise, inOneRequest } from '../support/crosswise.js';
import { startPostgres } from '../support/postgres-server.js';
import { PRISMA_TABLES } from '../support/prisma-client.js';
import { ROW_LOCK_ADAPTERS } from '../support/row-lock-adapters.js';
import type { Findings } from './main.js';

class SoakModule {}

/**
 * Through each adapter, half of twenty workers ask for rows [a, b] and half for [b, a], as fast as they
 * can: nobody must hear of a deadlock or be refused, and no body may be lost or run beside another.
 */
export async function soakRowLocks(seconds: number): Promise<Findings> {
  // A deadlock that happens is found out before anything else ends it.
  const server = await startPostgres({ settings: { deadlock_timeout: '20ms' } });
  const violations: string[] = [];
  const bodiesOf: string[] = [];
  try {
    for (const [name, open] of Object.entries(ROW_LOCK_ADAPTERS)) {
      const url = await server.createDatabase();
      const pool = new Pool({ connectionString: url });
      await pool.query(PRISMA_TABLES);
      const adapter = await open(url);
      const imports = [CmdxModule.forRoot({ rowLock: adapter.transactions })];
      const app = await NestFactory.createApplicationContext(
        { module: SoakModule, imports },
        { logger: ['error'] },
      );
      const take = inOneRequest(adapter, app.get(RowLocks));
      const report = await crosswise(adapter, take, pool, seconds * 1_000);
      const { bodies, counted, together, errors } = report;
      const sound = bodies > 0 && counted.every((count) => count === bodies) && together === 0;
      if (!sound || Object.keys(errors).length > 0) {
        violations.push(`${name}: ${JSON.stringify(report)}`);
      }
      bodiesOf.push(`${bodies} through ${name}`);
      await app.close();
      await adapter.close();
      await pool.end();
    }
  } finally {
    await server.stop();
  }
  return { summary: `bodies under two locks: ${bodiesOf.join(', ')}`, violations };
}
