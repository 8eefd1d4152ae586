import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startWorker } from '../support/processes.js';
import { type LimitOrder, MAX } from './limit-order.js';
import type { Findings } from './main.js';

const WORKER = join(dirname(fileURLToPath(import.meta.url)), 'limit-worker.ts');
const PROCESSES = 4;
const CALLS = 100;

/** Four processes start more at once than is allowed: exactly `max` of them must get in. */
export async function soakLimits(url: string, rounds: number): Promise<Findings> {
  const workers = Array.from({ length: PROCESSES }, () => startWorker(WORKER, [url]));
  const violations: string[] = [];
  let admitted = 0;
  try {
    await Promise.all(workers.map((worker) => worker.next()));
    for (let round = 0; round < rounds; round++) {
      for (const limiter of ['window', 'bucket'] as const) {
        const order: LimitOrder = { limiter, key: `round-${round}`, times: CALLS };
        const counts = await Promise.all(
          workers.map((worker) => {
            worker.send(order);
            return worker.next<number>();
          }),
        );
        const sum = counts.reduce((total, count) => total + count, 0);
        admitted += sum;
        if (sum !== MAX) violations.push(`${limiter}, round ${round}: ${sum} admitted, not ${MAX}`);
      }
    }
    await Promise.all(workers.map((worker) => worker.stop()));
  } finally {
    await Promise.all(workers.map((worker) => worker.kill()));
  }
  const starts = rounds * 2 * PROCESSES * CALLS;
  return { summary: `${admitted} of ${starts} starts admitted`, violations };
}
