import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { startWorker, type Worker } from '../support/processes.js';
import { borrowRedis } from '../support/redis-server.js';
import type { Order, Outcomes } from './two-processes-worker.js';

const WORKER = fileURLToPath(new URL('two-processes-worker.ts', import.meta.url));

describe('with two applications in two processes on one Redis', () => {
  let server: Awaited<ReturnType<typeof borrowRedis>>;
  let workers: readonly Worker[] = [];
  let redis: Redis;

  beforeAll(async () => {
    server = await borrowRedis();
    redis = new Redis(server.url);
    workers = [startWorker(WORKER, [server.url]), startWorker(WORKER, [server.url])];
    await Promise.all(workers.map((worker) => worker.next()));
  }, 30_000);
  afterAll(async () => {
    await Promise.all(workers.map((worker) => worker.stop()));
    await redis.quit();
    await server.stop();
  });

  /** Asks both for half of the calls at the same time. */
  async function callFromBoth(order: Order): Promise<Outcomes> {
    for (const worker of workers) worker.send({ ...order, calls: order.calls / 2 });
    const halves = await Promise.all(workers.map((worker) => worker.next<Outcomes>()));
    const sum: Record<string, number> = {};
    for (const [name, times] of halves.flatMap(Object.entries<number>)) {
      sum[name] = (sum[name] ?? 0) + times;
    }
    return sum;
  }

  it('do 1,000 concurrent starts with max 5 admit exactly 5?', async () => {
    const key = `starts:${process.pid}:${performance.timeOrigin}`;
    const outcomes = await callFromBoth({ method: 'start', key, calls: 1_000 });
    expect(outcomes).toEqual({ success: 5, rate_limited: 995 });
  }, 30_000);

  it('do 200 calls that wait for one lock all run, and never two at once?', async () => {
    const key = `room:${process.pid}:${performance.timeOrigin}`;
    const outcomes = await callFromBoth({ method: 'update', key, calls: 200 });
    expect(outcomes).toEqual({ success: 200 });
    const [bodies, overlaps, inside] = await redis.mget(
      `${key}:bodies`,
      `${key}:overlaps`,
      `${key}:inside`,
    );
    expect({ bodies, overlaps, inside }).toEqual({ bodies: '200', overlaps: null, inside: '0' });
    await redis.del(`${key}:bodies`, `${key}:inside`);
  }, 70_000);
});
