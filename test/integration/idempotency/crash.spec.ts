import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import type { Provider } from '@nestjs/common';
import { Redis } from 'ioredis';
import { IdempotencyRecords } from 'nestjs-cmdx';
import { type Application, closeApplicationsAfterEach } from '../../support/application.js';
import { bootOnRedis } from '../../support/on-redis.js';
import { startWorker, type Worker } from '../../support/processes.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { settledWithin, until, waitFor } from '../../support/time.js';
import { idempotencyKey, LEASE_MS, type Method, Payments, type Point } from './crash-payments.js';
import type { Order, Report } from './crash-worker.js';

const WORKER = fileURLToPath(new URL('crash-worker.ts', import.meta.url));
/** What is promised, and a little for a loaded machine to notice it. */
const RECOVERS_WITHIN_MS = LEASE_MS + 1_000;

closeApplicationsAfterEach();

let server: RedisServer;
/** Between the stores of the workers and Redis. */
let proxy: TcpProxy;
let redis: Redis;
/** The first is stopped and killed, the second is closed. */
let workers: readonly Worker[] = [];
/** The other process: this one. */
let application: Application;
let payments: Payments;

beforeAll(async () => {
  server = await startRedis();
  proxy = await TcpProxy.start(server.port);
  redis = new Redis(server.url);
  workers = [1, 2].map(() => startWorker(WORKER, [proxy.url, server.url]));
  await Promise.all(workers.map((worker) => worker.next()));
}, 20_000);

beforeEach(async () => {
  application = await bootOnRedis(server.url, providers());
  payments = application.get(Payments);
});

afterAll(async () => {
  for (const worker of workers) worker.thaw();
  await Promise.all(workers.map((worker) => worker.kill()));
  redis.disconnect();
  await proxy.stop();
  await server.stop();
});

function providers(): Provider[] {
  return [Payments, { provide: Redis, useValue: redis }];
}

/** Gives orders to a worker, and waits for its reports in any order. */
class Orders {
  readonly #reports: Report[] = [];

  constructor(private readonly worker: Worker) {}

  give(order: Order): void {
    this.worker.send(order);
  }

  /** Starts a call and sees its body stay at the point. */
  async stay(call: Method, key: string, stayAt: Point): Promise<void> {
    this.give({ call, key, stayAt });
    await this.told('reached', key);
  }

  async told<K extends 'reached' | 'aborted' | 'ended'>(
    what: K,
    key: string,
  ): Promise<Extract<Report, Record<K, unknown>>> {
    for (;;) {
      const index = this.#reports.findIndex((report) => what in report && report.key === key);
      const [found] = index < 0 ? [] : this.#reports.splice(index, 1);
      if (found) return found as Extract<Report, Record<K, unknown>>;
      const ended = this.#reports.find((report) => 'ended' in report && report.key === key);
      if (ended) throw new Error(`${key} has ended: ${JSON.stringify(ended)}`);
      this.#reports.push(await this.worker.next<Report>());
    }
  }
}

/** How a call of this process ends: its value, or the code of its refusal. */
async function answerOf(method: Method, key: string, from = payments): Promise<string> {
  return from[method](key).catch(({ code }: { code: string }) => code);
}

/** Calls again and again, and sees each told `in_progress`, until the answer is another one. */
async function answerAfterProgress(method: Method, key: string): Promise<string> {
  for (;;) {
    const answer = await answerOf(method, key);
    if (answer !== 'in_progress') return answer;
    await waitFor(30);
  }
}

function effectsOf(key: string): Promise<number> {
  return redis.get(`effects:${key}`).then(Number);
}

/** In which runs of the key this process has claimed it. */
function runsOf(method: Method, key: string): readonly number[] {
  return application.telemetry
    .of('idempotency_claimed')
    .filter(({ payload }) => payload.idempotencyKey === idempotencyKey(method, key))
    .map(({ payload }) => payload.run);
}

describe('What becomes of an owner that is stopped past its lease, and goes on?', () => {
  let worker: Worker;
  let orders: Orders;
  beforeAll(() => {
    worker = workers[0] as Worker;
    orders = new Orders(worker);
  });
  afterEach(() => worker.thaw());

  it('the newer result stands; the old one is told within 1 s, changes nothing, and gets its own value', async () => {
    const keys = ['finished-meanwhile', 'still-in-flight'];
    for (const key of keys) await orders.stay('again', key, 'after the effect');
    worker.freeze();
    let goOn = (): void => undefined;
    const free = new Promise<void>((resolve) => (goOn = resolve));
    payments.reach = async (key, point) => {
      if (key === 'still-in-flight' && point === 'after the effect') await free;
    };
    const [newer, inFlight] = keys.map((key) => answerAfterProgress('again', key));
    expect(await newer).toBe('receipt 2');
    await until(async () => (await effectsOf('still-in-flight')) === 2, 'the takeover');

    worker.thaw();
    const told = async (): Promise<void> => {
      for (const key of keys) {
        expect((await orders.told('aborted', key)).aborted).toBe('LeaseLostError');
      }
    };
    await settledWithin(1_000, told());
    for (const key of keys) {
      const record = await redis.get(idempotencyKey('again', key));
      orders.give({ goOn: key });
      const { ended, events } = await orders.told('ended', key);
      expect({ ended, events }).toEqual({
        ended: 'receipt 1',
        events: ['idempotency_claimed', 'idempotency_stale'],
      });
      // But for the lease, which the owner of the one in flight renews.
      expect(withoutLease(await redis.get(idempotencyKey('again', key)))).toBe(
        withoutLease(record),
      );
    }
    goOn();
    expect(await inFlight).toBe('receipt 2');
    for (const key of keys) {
      expect({ answer: await answerOf('again', key), runs: runsOf('again', key) }).toEqual({
        answer: 'receipt 2',
        runs: [2],
      });
      expect(await effectsOf(key)).toBe(2);
    }
  }, 20_000);

  it('where nobody has taken over, it is still its own: abandoned meanwhile, then in_progress, then done', async () => {
    await orders.stay('once', 'slow', 'after the effect');
    worker.freeze();
    expect(await answerAfterProgress('once', 'slow')).toBe('abandoned');
    worker.thaw();
    await until(
      async () => (await answerOf('once', 'slow')) === 'in_progress',
      'the claim to be renewed',
      1_000,
    );
    orders.give({ goOn: 'slow' });
    expect(await orders.told('ended', 'slow')).toEqual({
      ended: 'receipt 1',
      key: 'slow',
      events: ['idempotency_claimed'],
    });
    expect(await answerOf('once', 'slow')).toBe('receipt 1');
    expect(await effectsOf('slow')).toBe(1);
  }, 20_000);
});

const METHODS = ['once', 'again'] as const;
/** How often the effect has happened when the process is killed there. */
const KILLED = {
  'claim unread': 0,
  'before the effect': 0,
  'after the effect': 1,
  'completion unwritten': 1,
} as const;
const POINTS = Object.keys(KILLED) as (keyof typeof KILLED)[];

it('What does a kill -9 leave behind? in_progress, then abandoned or a second run, within lease + 1 s', async () => {
  const worker = workers[0] as Worker;
  const orders = new Orders(worker);
  const nameOf = (point: keyof typeof KILLED): string => point.replaceAll(' ', '-');
  for (const method of METHODS) {
    for (const point of ['before the effect', 'after the effect'] as const) {
      await orders.stay(method, `${method}-${nameOf(point)}`, point);
    }
    await orders.stay(method, `${method}-completion-unwritten`, 'after the effect');
  }
  proxy.hold('replies');
  for (const call of METHODS) {
    orders.give({ call, key: `${call}-claim-unread` });
    const record = idempotencyKey(call, `${call}-claim-unread`);
    await until(async () => (await redis.exists(record)) === 1, 'the claim');
  }
  proxy.hold('requests');
  const { commandsFromClient } = proxy;
  for (const method of METHODS) orders.give({ goOn: `${method}-completion-unwritten` });
  await until(() => proxy.commandsFromClient >= commandsFromClient + 2, 'the completions');
  await worker.kill();
  proxy.restore();

  const recoveries = POINTS.flatMap((point) =>
    METHODS.map(async (method) => {
      const key = `${method}-${nameOf(point)}`;
      const first = await answerOf(method, key);
      const effects = await effectsOf(key);
      const afterwards = await answerAfterProgress(method, key);
      return { point, method, key, first, effects, afterwards };
    }),
  );
  const recovered = await settledWithin(RECOVERS_WITHIN_MS, Promise.all(recoveries));
  for (const { point, method, key, first, effects, afterwards } of recovered) {
    const before = KILLED[point];
    expect({ key, first, effects }).toEqual({ key, first: 'in_progress', effects: before });
    if (method === 'again') {
      expect({ key, afterwards, runs: runsOf(method, key) }).toEqual({
        key,
        afterwards: `receipt ${before + 1}`,
        runs: [2],
      });
      expect(await answerOf(method, key)).toBe(afterwards);
      expect(await effectsOf(key)).toBe(before + 1);
    } else {
      expect({ key, afterwards, effects: await effectsOf(key) }).toEqual({
        key,
        afterwards: 'abandoned',
        effects: before,
      });
      const records = application.get(IdempotencyRecords);
      const record = idempotencyKey(method, key);
      expect(await records.inspect(record)).toMatchObject({ state: 'abandoned', run: 1 });
      expect(await records.forget(record)).toBe(true);
      expect(await answerOf(method, key)).toBe(`receipt ${before + 1}`);
      expect(await records.inspect(record)).toMatchObject({ state: 'done', run: 1 });
    }
  }
}, 20_000);

it('What does a body that is longer than shutdownTimeout leave behind? Its claim, no lock, no handle', async () => {
  const worker = workers[1] as Worker;
  const orders = new Orders(worker);
  await orders.stay('locked', 'endless', 'after the effect');
  await orders.stay('once', 'endless', 'after the effect');
  // Ends only if nothing keeps the process alive any more.
  await settledWithin(RECOVERS_WITHIN_MS, worker.stop());
  expect(await redis.exists('cmdx:lock:Payments.locked:endless')).toBe(0);
  const answers = (['locked', 'once'] as const).map(async (method) => {
    const first = await answerOf(method, 'endless');
    return [first, await answerAfterProgress(method, 'endless')];
  });
  expect(await Promise.all(answers)).toEqual([
    ['in_progress', 'abandoned'],
    ['in_progress', 'abandoned'],
  ]);
  expect(await effectsOf('endless')).toBe(2);
}, 20_000);

it('Does a claim outlive its lease while its owner works? A body of three leases is one run', async () => {
  let end = (): void => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  payments.reach = (_key, point) => (point === 'after the effect' ? ended : Promise.resolve());
  const first = payments.again('long');
  await until(async () => (await effectsOf('long')) === 1, 'the body');
  const other = (await bootOnRedis(server.url, providers())).get(Payments);
  const answers = new Set<string>();
  const until3Leases = performance.now() + 3 * LEASE_MS;
  while (performance.now() < until3Leases) {
    answers.add(await answerOf('again', 'long', other));
    await waitFor(50);
  }
  end();
  expect([...answers]).toEqual(['in_progress']);
  expect(await first).toBe('receipt 1');
  expect(await answerOf('again', 'long', other)).toBe('receipt 1');
  expect(await effectsOf('long')).toBe(1);
}, 20_000);

/** A record of a claim, but for the moment up to which its lease reaches. */
function withoutLease(record: string | null): string {
  return String(record).replace(/^(\w:\d+):\d+/, '$1');
}
