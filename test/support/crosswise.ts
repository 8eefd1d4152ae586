import type { RowLocks } from 'nestjs-cmdx';
import type { Pool } from 'pg';
import type { RowLockAdapter } from './row-lock-adapters.js';

/** Two rows whose number in the store counts the bodies that ran. */
type Pair = readonly [number, number];
const PAIR: Pair = [1, 2];
const REVERSED: Pair = [2, 1];
const WORKERS = 20;

/** How a worker gets at its two rows. */
export type TakeBoth = (pair: Pair, body: () => Promise<void>) => Promise<void>;

export interface CrosswiseReport {
  readonly bodies: number;
  /** What the two rows have counted. */
  readonly counted: readonly number[];
  /** Bodies that found another at work. */
  readonly together: number;
  /** What callers were told instead, and how often. */
  readonly errors: Readonly<Record<string, number>>;
}

/** Both in one request. */
export const inOneRequest =
  ({ invoices }: RowLockAdapter, locks: RowLocks): TakeBoth =>
  (pair, body) =>
    locks.withLock(invoices, pair, body, { wait: '30s' });

/** One after the other, in the order in which they are named. */
export const inTheOrderNamed =
  ({ invoices }: RowLockAdapter, locks: RowLocks): TakeBoth =>
  ([first, second], body) =>
    locks.withLock(
      invoices,
      first,
      async () => {
        await locks.lock(invoices, second);
        await body();
      },
      { wait: '30s' },
    );

/**
 * Half of the workers ask for one row and then the other, half the other way round, as fast as they can.
 *
 * @param pool sets the rows up, and looks what they have counted
 * @param enough ends it before its time
 */
export async function crosswise(
  adapter: RowLockAdapter,
  take: TakeBoth,
  pool: Pool,
  ms: number,
  enough: (report: CrosswiseReport) => boolean = () => false,
): Promise<CrosswiseReport> {
  await pool.query(
    'TRUNCATE invoices, payments; INSERT INTO invoices (invoice_no, amount_cents) VALUES (1, 0), (2, 0)',
  );
  const errors: Record<string, number> = {};
  const report = { bodies: 0, counted: [] as number[], together: 0, errors };
  const end = performance.now() + ms;
  let inside = 0;
  const count = (row: number): Promise<unknown> =>
    adapter.ask(`UPDATE invoices SET amount_cents = amount_cents + 1 WHERE invoice_no = ${row}`);
  const worker = async (_: unknown, position: number): Promise<void> => {
    const pair = position % 2 === 0 ? PAIR : REVERSED;
    while (performance.now() < end && !enough(report)) {
      try {
        await take(pair, async () => {
          inside += 1;
          if (inside > 1) report.together += 1;
          try {
            await count(pair[0]);
            await count(pair[1]);
          } finally {
            inside -= 1;
          }
        });
        report.bodies += 1;
      } catch (error) {
        const { code, metadata } = error as { code?: string; metadata?: { sqlState?: string } };
        const name = [code ?? String(error), metadata?.sqlState].filter(Boolean).join(' ');
        errors[name] = (errors[name] ?? 0) + 1;
      }
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, worker));
  const { rows } = await pool.query<{ amount_cents: number }>(
    'SELECT amount_cents FROM invoices ORDER BY invoice_no',
  );
  return { ...report, counted: rows.map(({ amount_cents: amount }) => amount) };
}
