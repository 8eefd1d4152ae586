import { Redis } from 'ioredis';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import {
  BODIES,
  CIRCUIT_KEY,
  type HalfOpenOrder,
  type HalfOpenStand,
  lockKeyOf,
  OPEN_MS,
} from './half-open-order.js';
import { startWorker, type Worker } from './processes.js';
import { startRedis } from './redis-server.js';
import { TcpProxy } from './tcp-proxy.js';

export { PERMITS } from './half-open-order.js';

const WORKER = join(dirname(fileURLToPath(import.meta.url)), 'half-open-worker.ts');

/**
 * What happens while all callers of all processes call at once:
 * nothing else, the lock is busy and they wait until it is free, or the reply of each process's
 * first `enter` is lost.
 */
export type Trouble = 'none' | 'busy lock' | 'lost replies';

/** What came of one storm. */
export interface StormReport {
  /** Bodies that ran, counted in Redis by themselves. */
  readonly bodies: number;
  /** Outcomes of all callers, while the bodies ran and after they have ended. */
  readonly during: Readonly<Record<string, number>>;
  readonly after: Readonly<Record<string, number>>;
  /** Transitions that any process was told, from half open on. */
  readonly transitions: Readonly<Record<string, number>>;
  /** The first letter of the breaker's record in the end. */
  readonly state: string;
  /** Connections that were broken. */
  readonly broken: number;
}

export interface HalfOpenStorm {
  /** Opens the breaker, lets its time pass, then lets everybody call at once. */
  run(callers: number, trouble: Trouble): Promise<StormReport>;
  stop(): Promise<void>;
}

/** Starts a Redis server and the processes, each with a connection that can be disturbed. */
export async function startHalfOpenStorm(processes: number): Promise<HalfOpenStorm> {
  const server = await startRedis();
  const redis = new Redis(server.url);
  const positions = Array.from({ length: processes }, (_, position) => position);
  const proxies = await Promise.all(positions.map(() => TcpProxy.start(server.port)));
  const workers = proxies.map(({ url }) => startWorker(WORKER, [url, server.url]));
  const stop = async (): Promise<void> => {
    await Promise.all(workers.map((worker) => worker.kill()));
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    redis.disconnect();
    await server.stop();
  };
  try {
    await Promise.all(workers.map((worker) => worker.next()));
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    stop,
    async run(callers, trouble) {
      await redis.flushall();
      await ask(workers.slice(0, 1), () => ({ task: 'trip' }));
      await sleep(OPEN_MS + 50);
      const before = await ask(workers, () => ({ task: 'release' }));
      const connectionsBefore = connections(proxies);

      const keys = positions.map((position) => `key-${position}`);
      const method = trouble === 'busy lock' ? 'probeLocked' : 'probe';
      if (trouble === 'busy lock') {
        for (const key of keys) await redis.set(lockKeyOf(key), 'somebody else', 'PX', 120_000);
      }
      if (trouble === 'lost replies') for (const proxy of proxies) proxy.loseReplyOf();
      const scripts = await scriptsRun(redis);
      const standing = ask(workers, (position) => ({
        task: 'storm',
        method,
        key: keys[position] ?? '',
        callers,
      }));
      if (trouble === 'busy lock') {
        while ((await scriptsRun(redis)) < scripts + processes * callers) await sleep(10);
        await redis.del(...keys.map(lockKeyOf));
      }
      const stand = await standing;
      const end = await ask(workers, () => ({ task: 'release' }));
      return {
        bodies: Number(await redis.get(BODIES)),
        during: sum(stand.map(({ inside, outcomes }) => ({ ...outcomes, inside }))),
        after: sum(end.map(({ outcomes }) => outcomes)),
        transitions: difference(
          sum(end.map(({ transitions }) => transitions)),
          sum(before.map(({ transitions }) => transitions)),
        ),
        state: (await redis.get(CIRCUIT_KEY))?.[0] ?? '',
        broken: connections(proxies) - connectionsBefore,
      };
    },
  };
}

function ask(
  workers: readonly Worker[],
  orderOf: (position: number) => HalfOpenOrder,
): Promise<HalfOpenStand[]> {
  return Promise.all(
    workers.map((worker, position) => {
      worker.send(orderOf(position));
      return worker.next<HalfOpenStand>();
    }),
  );
}

function connections(proxies: readonly TcpProxy[]): number {
  return proxies.reduce((all, proxy) => all + proxy.connections, 0);
}

async function scriptsRun(redis: Redis): Promise<number> {
  const stats = await redis.info('commandstats');
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
}

function sum(counts: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const all: Record<string, number> = {};
  for (const [name, count] of counts.flatMap((each) => Object.entries(each))) {
    all[name] = (all[name] ?? 0) + count;
  }
  return all;
}

function difference(
  after: Readonly<Record<string, number>>,
  before: Readonly<Record<string, number>>,
): Record<string, number> {
  const changed = Object.entries(after).map(
    ([name, count]) => [name, count - (before[name] ?? 0)] as const,
  );
  return Object.fromEntries(changed.filter(([, count]) => count !== 0));
}
