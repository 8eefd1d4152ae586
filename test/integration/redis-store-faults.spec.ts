import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Redis } from 'ioredis';
import { Deadline } from '../../lib/clock/deadline.js';
import { DefinitionError } from '../../lib/errors/definition.error.js';
import { isStoreError, type StoreError } from '../../lib/errors/store.error.js';
import { RedisStore, type RedisStoreOptions } from '../../lib/store/redis/index.js';
import type { EnterReply, EnterStep } from '../../lib/store/store.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { settledWithin, until } from '../support/time.js';

const TIMEOUT_MS = 300;
/** A loaded machine may notice a deadline late; a call must never take another whole one. */
const GRACE_MS = 200;
const MINUTE = 60_000;

let server: RedisServer;
let proxy: TcpProxy;
/** Sees what really stands in Redis. */
let observer: Redis;
let opened: RedisStore[];

beforeEach(async () => {
  server = await startRedis();
  proxy = await TcpProxy.start(server.port);
  observer = new Redis(server.port, '127.0.0.1', { retryStrategy: () => 20 });
  observer.on('error', () => undefined);
  opened = [];
});

afterEach(async () => {
  server.thaw();
  await Promise.all(opened.map((store) => store.close()));
  observer.disconnect();
  await proxy.stop();
  await server.stop();
});

function storeOn(options: RedisStoreOptions, timeoutMs = TIMEOUT_MS): RedisStore {
  const store = new RedisStore(options);
  store.useTimeout(timeoutMs);
  opened.push(store);
  return store;
}

/** A store that is connected and whose scripts are loaded. */
async function warmStore(url: string, timeoutMs = TIMEOUT_MS): Promise<RedisStore> {
  const store = storeOn({ url }, timeoutMs);
  await store.enter([hit('warm')], Deadline.after(5_000));
  await store.leave([{ kind: 'release', key: 'warm:lease', token: 'none', ttlMs: 1 }]);
  return store;
}

function hit(key: string, max = 100): EnterStep {
  return { kind: 'fixed_window', key, max, windowMs: MINUTE };
}

function pour(key: string, capacityMs: number, costMs: number): EnterStep {
  return { kind: 'leaky_bucket', key, capacityUs: capacityMs * 1_000, costUs: costMs * 1_000 };
}

function hold(key: string, token = 'token', ttlMs = MINUTE): EnterStep {
  return { kind: 'lease', key, token, ttlMs };
}

/** A call that is given up after that time. */
function attempt(store: RedisStore, ...steps: EnterStep[]): Promise<EnterReply[]> {
  return store.enter(steps, Deadline.after(TIMEOUT_MS));
}

/** A call that has to be answered within the same time; its own deadline, told by a clock, is far. */
function enter(store: RedisStore, ...steps: EnterStep[]): Promise<EnterReply[]> {
  return settledWithin(TIMEOUT_MS, store.enter(steps, Deadline.after(MINUTE)));
}

/** Waits until a step of this key is answered again. */
function answers(store: RedisStore, key: string): Promise<void> {
  return until(
    async () => (await attempt(store, hit(key)).catch(() => [])).length === 1,
    'a reply',
  );
}

async function failureOf(call: () => Promise<unknown>): Promise<StoreError> {
  try {
    await call();
  } catch (error) {
    if (!isStoreError(error)) throw error;
    return error;
  }
  throw new Error('expected the call to fail');
}

/** The same, and the caller has not been kept waiting. */
function promptFailureOf(call: () => Promise<unknown>): Promise<StoreError> {
  return settledWithin(TIMEOUT_MS + GRACE_MS, failureOf(call));
}

describe('while Redis is away', () => {
  it('does the application boot, and every call settle in time?', async () => {
    await server.kill();
    const store = storeOn({ url: server.url });
    store.open();
    for (let i = 0; i < 3; i += 1) {
      const start = performance.now();
      const { reason } = await promptFailureOf(() => attempt(store, hit('key')));
      expect(reason).toBe('disconnected');
      expect(performance.now() - start).toBeGreaterThanOrEqual(TIMEOUT_MS - 1);
    }
    await server.restart();
    await answers(store, 'key');
  });

  it('does a client with the default settings change nothing about that?', async () => {
    const client = new Redis(server.port, '127.0.0.1');
    client.on('error', () => undefined);
    try {
      const store = storeOn({ client });
      await enter(store, hit('key'));
      await server.kill();
      const failures = await Promise.all(
        Array.from({ length: 20 }, () => promptFailureOf(() => attempt(store, hit('key')))),
      );
      for (const { reason } of failures) expect(reason).toBe('disconnected');
    } finally {
      client.disconnect();
    }
  });

  it('is a wait for the connection answered as soon as it is there?', async () => {
    await server.kill();
    const store = storeOn({ url: server.url }, 5_000);
    const waiting = Promise.all(
      Array.from({ length: 10 }, () => store.enter([hit('key')], Deadline.after(5_000))),
    );
    await sleep(100);
    await server.restart();
    const counts = (await waiting).map(([reply]) => reply?.kind === 'fixed_window' && reply.count);
    expect(counts.toSorted((a, b) => Number(a) - Number(b))).toEqual([
      1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
    ]);
  });

  it('is it found again after 3 seconds and a restart, scripts included?', async () => {
    const store = await warmStore(server.url);
    await server.kill();
    const end = performance.now() + 3_000;
    while (performance.now() < end) {
      const { reason } = await failureOf(() => attempt(store, hit('key')));
      expect(reason).toBe('disconnected');
    }
    await server.restart();
    await settledWithin(1_000, answers(store, 'key'));
    expect(await observer.get('key')).toBe('1');
  });

  it('is a server without our scripts (NOSCRIPT) charged once?', async () => {
    const store = await warmStore(server.url);
    await observer.script('FLUSH');
    await enter(store, hit('key'), hold('lease'));
    expect(await observer.mget('key', 'lease')).toEqual(['1', 'token']);
  });
});

describe('while Redis is frozen', () => {
  it('does every call settle in time, and do late commands change nothing?', async () => {
    const store = await warmStore(server.url);
    server.freeze();
    const failures = await Promise.all(
      Array.from({ length: 5 }, (_, i) =>
        promptFailureOf(() =>
          attempt(store, hit('key'), pour('bucket', MINUTE, 1), hold(`lease${i}`)),
        ),
      ),
    );
    const writes = await Promise.all([
      promptFailureOf(() => store.set('set', 'x', { ttl: '1m' })),
      promptFailureOf(() => store.incr('incr', { ttl: '1m' })),
      promptFailureOf(() => store.delete('warm')),
    ]);
    for (const { reason } of [...failures, ...writes]) expect(reason).toBe('timeout');
    await sleep(50);
    server.thaw();
    await answers(store, 'other');
    expect((await observer.keys('*')).toSorted()).toEqual(['other', 'warm']);
  });

  it('is a leave that failed done after the thaw?', async () => {
    const store = await warmStore(server.url);
    await enter(store, hold('lease'));
    server.freeze();
    await promptFailureOf(() =>
      store.leave([{ kind: 'release', key: 'lease', token: 'token', ttlMs: MINUTE }]),
    );
    server.thaw();
    await until(async () => (await observer.exists('lease')) === 0, 'the release');
  });

  it('does a stall of our own process lose an answer that has already come?', async () => {
    const store = await warmStore(server.url);
    const call = attempt(store, hit('key'));
    await new Promise((resolve) => setImmediate(resolve));
    const end = performance.now() + TIMEOUT_MS * 2;
    while (performance.now() < end);
    await expect(call).resolves.toHaveLength(1);
  });
});

describe('while the network loses packets', () => {
  it('do requests that arrive after their deadline change nothing?', async () => {
    const store = await warmStore(proxy.url);
    proxy.hold('requests');
    const failures = await Promise.all(
      Array.from({ length: 5 }, (_, i) =>
        failureOf(() => attempt(store, hit('key'), pour('bucket', MINUTE, 1), hold(`lease${i}`))),
      ),
    );
    expect(failures.map(({ reason }) => reason)).toEqual(Array(5).fill('timeout'));
    proxy.restore();
    await enter(store, hit('other'));
    expect((await observer.keys('*')).toSorted()).toEqual(['other', 'warm']);
  });

  it('is a lease given back whose grant never arrived?', async () => {
    const store = await warmStore(proxy.url);
    proxy.hold('replies');
    const { reason } = await failureOf(() => attempt(store, hit('key'), hold('lease')));
    expect(reason).toBe('timeout');
    await until(async () => (await observer.exists('lease')) === 0, 'the release');
    expect(await observer.get('key')).toBe('1');
  });

  it('is a connection given up that swallows everything and never ends?', async () => {
    const store = await warmStore(proxy.url);
    proxy.blackHole();
    await settledWithin(5_000, answers(store, 'key'));
    // 0 if that call was the one whose connection was given up: then it was a look only.
    const counted = Number(await observer.get('key'));
    expect(counted).toBeLessThanOrEqual(1);
    expect(await enter(store, hit('key'))).toMatchObject([{ count: counted + 1 }]);
  }, 15_000);
});

describe('when the connection breaks in mid-command', () => {
  it('is a start charged once, and admitted as the lost reply said?', async () => {
    const store = await warmStore(proxy.url);
    proxy.loseReplyOf();
    expect(await enter(store, hit('window', 1))).toMatchObject([{ admitted: true, count: 1 }]);
    proxy.loseReplyOf();
    expect(await enter(store, hit('window', 1))).toMatchObject([{ admitted: false, count: 2 }]);
    expect(await observer.get('window')).toBe('2');

    proxy.loseReplyOf();
    expect(await enter(store, pour('bucket', MINUTE, 10_000))).toMatchObject([{ admitted: true }]);
    expect((await observer.get('bucket'))?.split(':')[0]).toBe('10000000');
    const before = await observer.get('bucket');
    proxy.loseReplyOf();
    expect(await enter(store, pour('bucket', MINUTE, MINUTE))).toMatchObject([{ admitted: false }]);
    expect(await observer.get('bucket')).toBe(before);
  });

  it('is a start that never arrived let through, and not counted?', async () => {
    const store = await warmStore(proxy.url);
    proxy.hold('requests');
    const { commandsFromClient } = proxy;
    const call = enter(store, hit('window', 1));
    await until(() => proxy.commandsFromClient > commandsFromClient, 'the command');
    proxy.cut();
    proxy.restore();
    expect(await call).toMatchObject([{ admitted: true, count: 1 }]);
    expect(await observer.exists('window')).toBe(0);
  });

  it('is a lease entered again with its own token?', async () => {
    const store = await warmStore(proxy.url);
    proxy.loseReplyOf();
    const replies = await enter(store, hit('window'), hold('lease'));
    expect(replies).toMatchObject([{ admitted: true, count: 1 }, { admitted: true }]);
    expect(await observer.mget('window', 'lease')).toEqual(['1', 'token']);
    await sleep(600);
    expect(await observer.get('lease')).toBe('token');
  });

  it('is a lease given back that was granted before the connection stayed away?', async () => {
    const store = await warmStore(proxy.url);
    proxy.loseReplyOf(1, { andRefuse: true });
    const { reason } = await promptFailureOf(() => attempt(store, hold('lease')));
    expect(reason).toBe('disconnected');
    expect(await observer.get('lease')).toBe('token');
    proxy.restore();
    await until(async () => (await observer.exists('lease')) === 0, 'the release');
  });

  it('is the lease of a lost admission given back when the second look refuses?', async () => {
    const store = await warmStore(proxy.url, 3_000);
    proxy.loseReplyOf(1, { andRefuse: true });
    const call = store.enter([hit('window', 1), hold('lease')], Deadline.after(3_000));
    await until(async () => (await observer.get('lease')) === 'token', 'the lost admission');
    await observer.incr('window');
    proxy.restore();
    expect(await call).toMatchObject([{ admitted: false, count: 2 }]);
    await until(async () => (await observer.exists('lease')) === 0, 'the release');
  });

  it('is a release whose reply was lost still a release?', async () => {
    const store = await warmStore(proxy.url);
    await enter(store, hold('lease'));
    proxy.loseReplyOf();
    const step = { kind: 'release', key: 'lease', token: 'token', ttlMs: MINUTE } as const;
    expect(await store.leave([step])).toEqual([{ kind: 'release', released: true }]);
    expect(await observer.exists('lease')).toBe(0);
  });

  it('is a release that could not be sent done in the background, but never another lease?', async () => {
    const store = await warmStore(proxy.url);
    await enter(store, hold('mine'), hold('lost'));
    proxy.refuse();
    const steps = ['mine', 'lost'].map((key) => ({
      kind: 'release' as const,
      key,
      token: 'token',
      ttlMs: MINUTE,
    }));
    expect((await failureOf(() => store.leave(steps))).reason).toBe('disconnected');
    await observer.set('lost', 'other', 'EX', 60);
    proxy.restore();
    await until(async () => (await observer.exists('mine')) === 0, 'the release');
    expect(await observer.get('lost')).toBe('other');
  });

  it('is an increment never sent twice?', async () => {
    const store = await warmStore(proxy.url);
    proxy.loseReplyOf();
    expect((await failureOf(() => store.incr('number', { ttl: '1m' }))).reason).toBe(
      'disconnected',
    );
    await sleep(300);
    expect(await observer.get('number')).toBe('1');
  });
});

describe('our connection', () => {
  it('does it leave the client it was given alone, and open?', async () => {
    const client = new Redis(server.port, '127.0.0.1', { lazyConnect: true });
    const store = storeOn({ client });
    expect(client.status).toBe('wait');
    await enter(store, hit('key'));
    expect(client.status).toBe('wait');
    await store.close();
    expect(await client.ping()).toBe('PONG');
    expect(client.options.enableOfflineQueue).toBe(true);
    client.disconnect();
  });

  it('does it open on the first call only?', async () => {
    storeOn({ url: proxy.url });
    await sleep(50);
    expect(proxy.connections).toBe(0);
  });

  it('does it keep database, key prefix and password?', async () => {
    await observer.config('SET', 'requirepass', 'secret');
    const client = new Redis(server.port, '127.0.0.1', {
      db: 3,
      keyPrefix: 'app:',
      password: 'secret',
      lazyConnect: true,
      commandTimeout: 1,
    });
    const store = storeOn({ client });
    await enter(store, hit('key'), hold('lease'));
    await observer.select(3);
    expect((await observer.keys('*')).toSorted()).toEqual(['app:key', 'app:lease']);
    expect(await store.get('lease')).toBe('token');
    expect(await store.forget('lease')).toBe(true);
  });

  it('is our patience the only one, whatever the client says?', async () => {
    const client = new Redis(server.port, '127.0.0.1', {
      lazyConnect: true,
      commandTimeout: 5,
      enableAutoPipelining: true,
      stringNumbers: true,
      reconnectOnError: () => 2,
    });
    const store = storeOn({ client });
    await enter(store, hit('key'));
    server.freeze();
    setTimeout(() => server.thaw(), 100);
    expect(await enter(store, hit('key'))).toMatchObject([{ count: 2 }]);
    await observer.set('text', 'words');
    await expect(store.incr('text', { ttl: '1m' })).rejects.toThrow(/not an integer/);
  });

  it('is a wrong password told as the cause?', async () => {
    const store = storeOn({ url: server.url.replace('//', '//:wrong@') });
    await observer.config('SET', 'requirepass', 'secret');
    await expect(attempt(store, hit('key'))).rejects.toThrow(/no connection to Redis .*WRONGPASS/);
  });

  it('is a decision one command of at most 160 bytes?', async () => {
    const store = await warmStore(proxy.url);
    const key = 'k'.repeat(32);
    const step: EnterStep = { kind: 'fixed_window', key, max: 5, windowMs: MINUTE };
    const { bytesFromClient, commandsFromClient } = proxy;
    for (let i = 0; i < 100; i += 1) await enter(store, step);
    const bytes = (proxy.bytesFromClient - bytesFromClient) / 100;
    process.stdout.write(`RedisStore: ${bytes} bytes per fixed_window decision\n`);
    expect(bytes).toBeLessThanOrEqual(160);
    expect(proxy.commandsFromClient - commandsFromClient).toBe(100);
  });

  it('is a batch of several steps one command in and one out?', async () => {
    const store = await warmStore(proxy.url);
    const { commandsFromClient } = proxy;
    await enter(store, hit('a'), pour('b', MINUTE, 1), hold('c'), hold('d'));
    await store.leave(
      ['c', 'd'].map((key) => ({ kind: 'release', key, token: 'token', ttlMs: MINUTE })),
    );
    expect(proxy.commandsFromClient - commandsFromClient).toBe(2);
  });

  it('does it let go of the async context of the call that opened it?', async () => {
    setFlagsFromString('--expose-gc');
    const gc = runInNewContext('gc') as () => void;
    const requests = new AsyncLocalStorage<object>();
    const store = storeOn({ url: server.url });
    const request = await (async () => {
      const context = { big: Buffer.alloc(1_000) };
      await requests.run(context, () => {
        store.open();
        return store.enter([hit('key'), hold('lease')], Deadline.after(MINUTE));
      });
      return new WeakRef(context);
    })();
    await until(() => {
      gc();
      return request.deref() === undefined;
    }, 'the context to be collected');
  });

  it('is a key that holds something else told apart from an outage?', async () => {
    const store = await warmStore(server.url);
    await observer.lpush('list', 'x');
    const failure = await failureOf(() => attempt(store, hold('before'), hold('list')));
    expect(failure.reason).toBe('error');
    // The message is logged, and keys are what users are known by.
    expect(failure.message).not.toContain('list');
    expect(await observer.exists('before')).toBe(0);
    expect(await observer.type('list')).toBe('list');
    await observer.lpush('counter', 'x');
    await observer.lpush('bucket', 'x');
    expect(await enter(store, hit('counter'), pour('bucket', MINUTE, 1))).toMatchObject([
      { admitted: true, count: 1 },
      { admitted: true },
    ]);
  });

  it.each([
    [{}],
    [{ url: '' }],
    [{ url: 'redis://a', client: {} }],
    [{ client: {} }],
    [{ uri: 'redis://a' }],
    [undefined],
  ])('is a wrong option caught when the store is made? %j', (options) => {
    expect(() => new RedisStore(options as never)).toThrow(DefinitionError);
  });
});

describe('close', () => {
  it('does it leave no handle behind, whatever the state of the connection?', async () => {
    const handles = (): string => process.getActiveResourcesInfo().toSorted().join();
    const before = handles();
    const connected = storeOn({ url: server.url });
    await enter(connected, hit('key'));
    const frozen = await warmStore(proxy.url);
    proxy.blackHole();
    const never = storeOn({ url: server.url });
    const away = storeOn({ url: 'redis://127.0.0.1:1' });
    away.open();
    await sleep(50);
    await Promise.all([connected, frozen, never, away].map((store) => store.close()));
    proxy.cut();
    // The test runner has short timers of its own now and then.
    await until(() => handles() === before, `nothing but ${before}`, 1_000);
  });

  it('are calls rejected as closed afterwards, and nothing is opened?', async () => {
    const store = storeOn({ url: proxy.url });
    await store.close();
    const { connections } = proxy;
    expect((await failureOf(() => attempt(store, hit('key')))).reason).toBe('closed');
    expect((await failureOf(() => store.leave([]))).reason).toBe('closed');
    expect((await failureOf(() => store.get('key'))).reason).toBe('closed');
    store.open();
    await sleep(50);
    expect(proxy.connections).toBe(connections);
  });

  it('does it wait for the calls under way, and give back what failed before?', async () => {
    const store = await warmStore(proxy.url);
    await enter(store, hold('mine'));
    proxy.refuse();
    await failureOf(() =>
      store.leave([{ kind: 'release', key: 'mine', token: 'token', ttlMs: MINUTE }]),
    );
    const late = enter(store, hold('last'));
    proxy.restore();
    await store.close();
    expect(await late).toMatchObject([{ admitted: true }]);
    expect(await observer.exists('mine')).toBe(0);
  });

  it('does it end in time while Redis is frozen?', async () => {
    const store = await warmStore(server.url);
    await enter(store, hold('mine'));
    server.freeze();
    await failureOf(() =>
      store.leave([{ kind: 'release', key: 'mine', token: 'token', ttlMs: MINUTE }]),
    );
    await settledWithin(TIMEOUT_MS + 500 + GRACE_MS, store.close());
  });
});
