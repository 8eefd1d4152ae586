import { Redis } from 'ioredis';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startWorker, type Worker } from '../support/processes.js';
import { KEYS, type LockTally, lockKeyOf, TTL_MS } from './lock-order.js';
import type { Findings } from './main.js';

const WORKER = join(dirname(fileURLToPath(import.meta.url)), 'lock-worker.ts');
const PROCESSES = 2;
/** A worker lives so long before it is killed in the middle of its work. */
const LIFE_MS = { shortest: 500, longest: 3_000 };

/**
 * Two processes fight for a few locks and are killed at random. Each body asks an independent
 * witness, a script of this test's own in Redis, whether another body is inside whose lease has
 * not run out.
 */
export async function soakLocks(url: string, seconds: number): Promise<Findings> {
  const redis = new Redis(url);
  const workers: Worker[] = [];
  const stopAt = performance.now() + seconds * 1_000;
  let kills = 0;
  try {
    const positions = Array.from({ length: PROCESSES }, (_, position) => position);
    await Promise.all(
      positions.map(async (position) => {
        for (;;) {
          const worker = (workers[position] = startWorker(WORKER, [url]));
          await worker.next();
          const life = LIFE_MS.shortest + Math.random() * (LIFE_MS.longest - LIFE_MS.shortest);
          if (performance.now() + life > stopAt) break;
          await sleep(life);
          await worker.kill();
          kills += 1;
        }
      }),
    );
    await sleep(Math.max(0, stopAt - performance.now()));
    await Promise.all(workers.map((worker) => worker.stop()));
    const tally = (await redis.hgetall('tally')) as Record<keyof LockTally, string>;
    return judge(tally, kills, await leftBehind(redis), await redis.lrange('violations', 0, -1));
  } finally {
    await Promise.all(workers.map((worker) => worker.kill()));
    redis.disconnect();
  }
}

/** Leases that outlive their ttl by a second, when everybody has gone. */
async function leftBehind(redis: Redis): Promise<string[]> {
  await sleep(TTL_MS + 1_000);
  const alive: string[] = [];
  for (let key = 0; key < KEYS; key++) {
    const name = lockKeyOf(key);
    if ((await redis.exists(name)) === 1) alive.push(`${name} is still there`);
  }
  return alive;
}

function judge(
  tally: Readonly<Record<keyof LockTally, string>>,
  kills: number,
  left: readonly string[],
  together: readonly string[],
): Findings {
  const bodies = Number(tally.bodies ?? 0);
  const late = Number(tally.late ?? 0);
  const violations = [...together, ...left];
  if (bodies < kills * 10) violations.push(`only ${bodies} bodies ran beside ${kills} kills`);
  return {
    summary: `${bodies} bodies under ${KEYS} keys, ${kills} processes killed, ${tally.busy ?? 0} refused busy, ${tally.outages ?? 0} without an answer, ${late} found their lease run out`,
    violations,
  };
}
