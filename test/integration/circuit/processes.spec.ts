import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { parseCircuit } from 'nestjs-cmdx';
import { startWorker, type Worker } from '../../support/processes.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { waitFor } from '../../support/time.js';
import type { Order, Report } from './processes-worker.js';
import { KEY, OPEN_MS, PROBE_MS } from './upstream.js';

const WORKER = fileURLToPath(new URL('processes-worker.ts', import.meta.url));

let server: RedisServer;
let redis: Redis;
let workers: readonly Worker[] = [];
let first: Worker;
let second: Worker;
/** Is killed. */
let victim: Worker;

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.url);
  workers = [first, second, victim] = [startOne(), startOne(), startOne()];
  await Promise.all(workers.map((worker) => worker.next()));
}, 30_000);
beforeEach(() => redis.flushall());
afterAll(async () => {
  for (const worker of workers) worker.thaw();
  await Promise.all(workers.map((worker) => worker.kill()));
  redis.disconnect();
  await server.stop();
});

function startOne(): Worker {
  return startWorker(WORKER, [server.url]);
}

async function ask(worker: Worker, order: Order): Promise<Report> {
  worker.send(order);
  return worker.next<Report>();
}

function count(ends: readonly unknown[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const end of ends) counts[String(end)] = (counts[String(end)] ?? 0) + 1;
  return counts;
}

async function state(): Promise<string | undefined> {
  return parseCircuit((await redis.get(KEY)) ?? '')?.state;
}

describe('two processes and one breaker on Redis', () => {
  it('what opens in one is open in the other at its next call, and each change is told once', async () => {
    const failed = await ask(first, { calls: 50, end: 'failure' });
    expect(count(failed.ends)).toEqual({ sick: 50 });
    const refused = await ask(second, { calls: 20, end: 'success' });
    expect([refused.runs, count(refused.ends)]).toEqual([0, { circuit_open: 20 }]);
    expect(failed.transitions).toEqual(['circuit_opened']);

    await waitFor(OPEN_MS);
    const [one, other] = await Promise.all([
      ask(first, { calls: 20, end: 'success' }),
      ask(second, { calls: 20, end: 'success' }),
    ]);
    const ends = count([...one.ends, ...other.ends]);
    expect(ends['well']).toBeGreaterThanOrEqual(1);
    expect(Object.keys(ends).toSorted()).toEqual(['circuit_open', 'well']);
    expect(await state()).toBe('closed');
    const told = [...one.transitions, ...other.transitions];
    expect(told.toSorted()).toEqual(['circuit_closed', 'circuit_half_opened']);
  }, 20_000);

  it('failures of both together open it, once', async () => {
    const [one, other] = await Promise.all([
      ask(first, { calls: 25, end: 'failure' }),
      ask(second, { calls: 25, end: 'failure' }),
    ]);
    expect([...one.transitions, ...other.transitions]).toEqual(['circuit_opened']);
    expect(await state()).toBe('open');
  }, 20_000);

  it('a probe whose process is killed gives its place to the other after probeTimeout', async () => {
    await ask(victim, { calls: 2, end: 'failure' });
    await waitFor(OPEN_MS);
    expect((await ask(victim, { calls: 1, end: 'hang' })).runs).toBe(1);
    await victim.kill();
    const before = await ask(second, { calls: 5, end: 'success' });
    expect([before.runs, count(before.ends)]).toEqual([0, { circuit_open: 5 }]);
    expect(await state()).toBe('half_open');
    await waitFor(PROBE_MS);
    const after = await ask(second, { calls: 1, end: 'success' });
    expect([after.runs, after.ends]).toEqual([1, ['well']]);
    expect(await state()).toBe('closed');
  }, 20_000);

  it('a probe that stood still for longer than that is not heard when it comes back', async () => {
    await ask(first, { calls: 2, end: 'failure' });
    await waitFor(OPEN_MS);
    await ask(first, { calls: 1, end: 'hang' });
    first.freeze();
    await waitFor(PROBE_MS);
    expect((await ask(second, { calls: 1, end: 'success' })).ends).toEqual(['well']);
    const after = await redis.get(KEY);
    first.thaw();
    expect(await ask(first, 'fail those that hang')).toEqual({
      runs: 0,
      ends: ['sick'],
      transitions: [],
    });
    expect(await redis.get(KEY)).toBe(after);
    expect(await state()).toBe('closed');
  }, 20_000);
});
