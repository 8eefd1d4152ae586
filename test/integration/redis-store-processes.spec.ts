import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { EnterReply, EnterStep, LeaveReply } from '../../lib/store/store.js';
import { startWorker, type Worker } from '../support/processes.js';
import { borrowRedis } from '../support/redis-server.js';
import { waitFor } from '../support/time.js';
import type { Order } from './redis-store-worker.js';

const WORKER = join(dirname(fileURLToPath(import.meta.url)), 'redis-store-worker.ts');

describe('with two processes', () => {
  let server: Awaited<ReturnType<typeof borrowRedis>>;
  let workers: Worker[] = [];

  beforeAll(async () => {
    server = await borrowRedis();
  });
  afterAll(() => server.stop());
  afterEach(async () => {
    for (const worker of workers) worker.thaw();
    await Promise.all(workers.map((worker) => worker.stop()));
  });

  function startTwo(): [Worker, Worker] {
    const pair: [Worker, Worker] = [
      startWorker(WORKER, [server.url]),
      startWorker(WORKER, [server.url]),
    ];
    workers = pair;
    return pair;
  }

  async function ask<T>(worker: Worker, order: Order): Promise<T> {
    worker.send(order);
    return worker.next<T>();
  }

  it('is a limit exact, and does a lease have one holder?', async () => {
    const [one, two] = startTwo();
    const key = `two:${process.pid}:${performance.now()}`;
    const window: EnterStep = { kind: 'fixed_window', key, max: 70, windowMs: 60_000 };
    const all = await Promise.all(
      [one, two].map((worker) => ask<EnterReply[][]>(worker, { enter: [window], times: 50 })),
    );
    const replies = all.flat(2);
    expect(replies.filter(({ admitted }) => admitted)).toHaveLength(70);
    const counts = replies.map((reply) => (reply.kind === 'fixed_window' ? reply.count : 0));
    expect(counts.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 100 }, (_, i) => i + 1));

    const leases = await Promise.all(
      [one, two].map((worker, i) =>
        ask<EnterReply[][]>(worker, { enter: [leaseOf(`${key}:l`, `t${i}`, 60_000)], times: 1 }),
      ),
    );
    expect(leases.flat(2).filter(({ admitted }) => admitted)).toHaveLength(1);
  }, 20_000);

  it('does a process that slept past its lease leave the next holder alone?', async () => {
    const [sleeper, next] = startTwo();
    const key = `slept:${process.pid}:${performance.now()}`;
    await ask(sleeper, { enter: [leaseOf(key, 'sleeper', 300)], times: 1 });
    sleeper.freeze();
    await waitFor(300);
    const [[reply]] = await ask<[[EnterReply]]>(next, {
      enter: [leaseOf(key, 'next', 60_000)],
      times: 1,
    });
    expect(reply).toEqual({ kind: 'lease', admitted: true });
    sleeper.thaw();
    const late = await ask<LeaveReply[]>(sleeper, {
      leave: [{ kind: 'release', key, token: 'sleeper', ttlMs: 300 }],
    });
    expect(late).toEqual([{ kind: 'release', released: false }]);
    const own = await ask<LeaveReply[]>(next, {
      leave: [{ kind: 'release', key, token: 'next', ttlMs: 60_000 }],
    });
    expect(own).toEqual([{ kind: 'release', released: true }]);
  }, 20_000);
});

function leaseOf(key: string, token: string, ttlMs: number): EnterStep {
  return { kind: 'lease', key, token, ttlMs };
}
