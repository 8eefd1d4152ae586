import { Mutex } from 'async-mutex';
import {
  circuitBreaker,
  ConstantBackoff,
  handleType,
  handleWhen,
  retry,
  SamplingBreaker,
} from 'cockatiel';
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { RateLimiterMemory } from 'rate-limiter-flexible';

/** The guarded method: its last argument comes back, to see who ran. */
export type Work = (key: string, request: string, value: number) => Promise<number>;

/** What a guarded method is surrounded by, so that both sides are given the same. */
export interface Envelope {
  /** Whether a second call of one request is answered with what the first has returned. */
  readonly idempotent: boolean;
  /** Starts per hour and key. */
  readonly max: number;
}

/** What {@link Work} throws when it is to be repeated. */
export class Flaky extends Error {}
export const RETRY_DELAY_MS = 1;
export const LOCK_TTL_MS = 300_000;
const HOUR_SECONDS = 3_600;
const DAY_MS = 24 * HOUR_SECONDS * 1_000;

/** One key, or one request, at a time: the second is refused. */
class Busy extends Error {}

/** What is remembered of a request: that it is being worked on, then what came of it. */
interface Remembered {
  readonly until: number;
  result: number | undefined;
}

/**
 * The five rings put together by hand from the usual packages, in the same order and with the same
 * settings: rate-limiter-flexible, cockatiel's circuit breaker, one mutex of async-mutex per key, a
 * Map of requests, cockatiel's retry. Nothing is ever cleared away, which is the cheapest.
 */
export function memoryStack(work: Work, { idempotent, max }: Envelope): Work {
  const limiter = new RateLimiterMemory({ points: max, duration: HOUR_SECONDS });
  const breaker = circuitBreaker(
    handleWhen((error) => !(error instanceof Busy)),
    {
      halfOpenAfter: 30_000,
      breaker: new SamplingBreaker({ threshold: 0.5, duration: 60_000, minimumRps: 10 / 60 }),
    },
  );
  const retrying = retry(handleType(Flaky), {
    maxAttempts: 3,
    backoff: new ConstantBackoff(RETRY_DELAY_MS),
  });
  const locks = new Map<string, Mutex>();
  const requests = new Map<string, Remembered>();

  const lockOf = (key: string): Mutex => {
    let lock = locks.get(key);
    if (!lock) locks.set(key, (lock = new Mutex()));
    return lock;
  };
  const once = async (key: string, request: string, value: number): Promise<number> => {
    const now = Date.now();
    const known = requests.get(request);
    if (known && known.until > now) {
      if (known.result === undefined) throw new Busy();
      return known.result;
    }
    const remembered: Remembered = { until: now + DAY_MS, result: undefined };
    requests.set(request, remembered);
    try {
      const result = await retrying.execute(() => work(key, request, value));
      remembered.result = result;
      return result;
    } catch (error) {
      requests.delete(request);
      throw error;
    }
  };

  return async (key, request, value) => {
    await limiter.consume(key);
    return breaker.execute(() => {
      const lock = lockOf(key);
      if (lock.isLocked()) throw new Busy();
      return lock.runExclusive(() =>
        idempotent ? once(key, request, value) : retrying.execute(() => work(key, request, value)),
      );
    });
  };
}

/** What a Redis stack has besides the method itself. */
export interface RedisStack {
  readonly call: Work;
  readonly versions: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

/**
 * `@nestjs/throttler` on Redis, redlock and `@node-idempotency`, called one inside the other without
 * the HTTP pipeline that they usually sit in: what is measured is their work on Redis alone.
 */
export async function redisStack(port: number, work: Work, max: number): Promise<RedisStack> {
  const load = prepareRivals();
  const { Redis } = load('ioredis') as typeof import('ioredis');
  const { ThrottlerStorageRedisService } = load('@nest-lab/throttler-storage-redis') as Throttler;
  const Redlock = load('redlock') as RedlockClass;
  const { Idempotency } = load('@node-idempotency/core') as IdempotencyCore;
  const adapters = load('@node-idempotency/storage-adapter-redis') as IdempotencyAdapters;

  const client = new Redis(port, '127.0.0.1');
  const throttler = new ThrottlerStorageRedisService(client);
  const redlock = new Redlock([client], { retryCount: 0 });
  const storage = new adapters.RedisStorageAdapter({ url: `redis://127.0.0.1:${port}` });
  await storage.connect();
  const idempotency = new Idempotency(storage);

  return {
    versions: Object.fromEntries(NAMED.map((name) => [name, versionOf(load, name)])),
    async call(key, request, value) {
      const windowMs = HOUR_SECONDS * 1_000;
      const { isBlocked } = await throttler.increment(key, windowMs, max, windowMs, 'default');
      if (isBlocked) throw new Error('throttled');
      const lock = await redlock.lock(`lock:${key}`, LOCK_TTL_MS);
      try {
        const headers = { 'Idempotency-Key': request };
        const order = { headers, path: '/work', method: 'POST', body: { key } };
        const before = await idempotency.onRequest(order);
        if (before) return before.body as number;
        const result = await work(key, request, value);
        await idempotency.onResponse(order, { body: result });
        return result;
      } finally {
        await lock.unlock();
      }
    },
    async close() {
      client.disconnect();
      await storage.disconnect();
    },
  };
}

const NAMED = [
  '@nest-lab/throttler-storage-redis',
  'redlock',
  '@node-idempotency/core',
  '@node-idempotency/storage-adapter-redis',
] as const;

const HERE = dirname(fileURLToPath(import.meta.url));
const INSTALLED = join(HERE, '../../node_modules/.cache/bench-rivals');
const LOCK_FILE = 'package-lock.json';

/**
 * Installs what Redis is measured beside into a folder of its own, once: their peer ranges end
 * before Nest 12, so that they cannot be installed beside it.
 *
 * @returns what loads a module from there
 */
export function prepareRivals(): NodeJS.Require {
  const wanted = join(HERE, 'rivals');
  const read = (folder: string): string => readFileSync(join(folder, LOCK_FILE), 'utf8');
  if (!existsSync(join(INSTALLED, LOCK_FILE)) || read(INSTALLED) !== read(wanted)) {
    const fresh = `${INSTALLED}.${process.pid}`;
    mkdirSync(fresh, { recursive: true });
    try {
      cpSync(wanted, fresh, { recursive: true });
      npmInstall(fresh);
      rmSync(INSTALLED, { recursive: true, force: true });
      renameSync(fresh, INSTALLED);
    } finally {
      rmSync(fresh, { recursive: true, force: true });
    }
  }
  return createRequire(join(INSTALLED, 'package.json'));
}

/** The environment without what npm has said to the script that runs here. */
function npmInstall(folder: string): void {
  const flags = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'];
  const env = Object.entries(process.env).filter(([name]) => !/^npm_|^NODE_OPTIONS$/.test(name));
  try {
    execFileSync('npm', ['ci', ...flags], {
      cwd: folder,
      env: Object.fromEntries(env),
      stdio: ['ignore', 'ignore', 'pipe'],
      shell: process.platform === 'win32',
    });
  } catch (error) {
    throw new Error(
      'The benchmark compares with packages that it installs by npm (test/bench/rivals); that failed.',
      { cause: error },
    );
  }
}

function versionOf(load: NodeJS.Require, name: string): string {
  const folder = join(INSTALLED, 'node_modules', name);
  return (load(join(folder, 'package.json')) as { version: string }).version;
}

interface Throttler {
  readonly ThrottlerStorageRedisService: new (client: object) => {
    increment(
      key: string,
      ttlMs: number,
      limit: number,
      blockMs: number,
      name: string,
    ): Promise<{ readonly isBlocked: boolean }>;
  };
}

type RedlockClass = new (
  clients: readonly object[],
  options: { readonly retryCount: number },
) => {
  lock(resource: string, ttlMs: number): Promise<{ unlock(): Promise<void> }>;
};

interface IdempotencyRequest {
  readonly headers: Readonly<Record<string, string>>;
  readonly path: string;
  readonly method: string;
  readonly body: unknown;
}

interface IdempotencyCore {
  readonly Idempotency: new (storage: object) => {
    onRequest(request: IdempotencyRequest): Promise<{ readonly body: unknown } | undefined>;
    onResponse(request: IdempotencyRequest, response: { readonly body: unknown }): Promise<void>;
  };
}

interface IdempotencyAdapters {
  readonly RedisStorageAdapter: new (options: { readonly url: string }) => {
    connect(): Promise<void>;
    disconnect(): Promise<void>;
  };
}
