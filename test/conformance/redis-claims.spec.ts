import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import {
  type ClaimStep,
  type CompleteStep,
  Deadline,
  type EnterReply,
  type EnterStep,
  isStoreError,
} from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until, waitFor } from '../support/time.js';

const MINUTE = 60_000;

let server: RedisServer;
let proxy: TcpProxy;
/** Sees what really stands in Redis. */
let observer: Redis;
let store: RedisStore;

beforeAll(async () => {
  server = await startRedis();
  observer = new Redis(server.port, '127.0.0.1');
});
afterAll(async () => {
  observer.disconnect();
  await server.stop();
});
beforeEach(async () => {
  await observer.flushall();
  proxy = await TcpProxy.start(server.port);
  store = new RedisStore({ url: proxy.url });
  await store.get('connected');
});
afterEach(async () => {
  await store.close();
  await proxy.stop();
});

function claim(token: string, options: Partial<ClaimStep> = {}): ClaimStep {
  const times = { leaseMs: MINUTE, ttlMs: MINUTE };
  return { kind: 'claim', key: 'key', token, ...times, onAbandoned: 'fail', ...options };
}

function complete(token: string, options: Partial<CompleteStep> = {}): CompleteStep {
  return { kind: 'complete', key: 'key', token, run: 1, ttlMs: MINUTE, outcome: 'x', ...options };
}

function lease(key: string, token: string): EnterStep {
  return { kind: 'lease', key, token, ttlMs: MINUTE };
}

function enter(...steps: EnterStep[]): Promise<EnterReply[]> {
  return store.enter(steps, Deadline.after(2_000));
}

describe('when a reply about a claim is lost', () => {
  it('is it claimed once, by the one who asked?', async () => {
    proxy.loseReplyOf();
    expect(await enter(claim('mine'))).toEqual([
      { kind: 'claim', admitted: true, state: 'claimed', run: 1 },
    ]);
    expect(await observer.get('key')).toMatch(/^p:1:\d+:mine::$/);
  });

  it('is a takeover the next run, and not the one after it?', async () => {
    await observer.set('key', 'p:3:1:lost::', 'PX', MINUTE);
    proxy.loseReplyOf();
    expect(await enter(claim('mine', { onAbandoned: 'rerun' }))).toMatchObject([{ run: 4 }]);
  });

  it('is a completion completed, and a dropped claim dropped?', async () => {
    await enter(claim('mine'));
    proxy.loseReplyOf();
    expect(await store.leave([complete('mine')])).toEqual([
      { kind: 'complete', state: 'completed' },
    ]);
    await observer.del('key');
    await enter(claim('mine'));
    proxy.loseReplyOf();
    expect(
      await store.leave([{ kind: 'unclaim', key: 'key', token: 'mine', ttlMs: MINUTE }]),
    ).toEqual([{ kind: 'unclaim', state: 'dropped' }]);
  });

  it('is the claim of a caller who was told of an error given back?', async () => {
    proxy.loseReplyOf(1, { andRefuse: true });
    const failed = store.enter([claim('mine')], Deadline.after(300));
    expect(isStoreError(await failed.catch((error: unknown) => error))).toBe(true);
    expect(await observer.get('key')).toMatch(/^p:1:/);
    proxy.restore();
    await until(async () => (await observer.get('key')) === null, 'the claim to be dropped');
  });

  it('is an outcome that could not be sent kept as soon as Redis is back?', async () => {
    await enter(claim('mine'));
    store.useTimeout(200);
    proxy.refuse();
    const failed = store.leave([complete('mine', { outcome: 'kept' })]);
    expect(isStoreError(await failed.catch((error: unknown) => error))).toBe(true);
    proxy.restore();
    await until(async () => (await observer.get('key')) === 'd:1:0:mine::kept', 'the outcome');
  });
});

describe('when Redis has no room for an outcome', () => {
  afterEach(() => observer.config('SET', 'maxmemory', '0'));

  it('is the rest given back all the same, and the outcome kept when there is room?', async () => {
    await enter(lease('inner', 'mine'), claim('mine'), lease('outer', 'mine'));
    await observer.config('SET', 'maxmemory', '1');
    const failed = store.leave([
      complete('mine', { outcome: 'kept' }),
      { kind: 'release', key: 'inner', token: 'mine', ttlMs: MINUTE },
      { kind: 'release', key: 'outer', token: 'mine', ttlMs: MINUTE },
    ]);
    const error: unknown = await failed.catch((reason: unknown) => reason);
    expect(isStoreError(error) && error.reason).toBe('error');
    expect(await observer.exists('inner', 'outer')).toBe(0);
    // The next try, right after the first, fails as well.
    await waitFor(50);
    await observer.config('SET', 'maxmemory', '0');
    await until(async () => (await observer.get('key')) === 'd:1:0:mine::kept', 'the outcome');
  });

  it('is a claim refused with an error, and nothing of its call held?', async () => {
    await observer.config('SET', 'maxmemory', '1');
    const failed = enter(lease('inner', 'mine'), claim('mine'));
    const error: unknown = await failed.catch((reason: unknown) => reason);
    expect(isStoreError(error) && error.reason).toBe('error');
    await until(async () => (await observer.exists('inner', 'key')) === 0, 'nothing held');
  });
});

describe('when the key of a claim holds no text', () => {
  it('is it an error that names no key, and nobody\u2019s claim?', async () => {
    const key = 'a-hash';
    await observer.hset(key, 'field', 'value');
    for (const call of [
      () => enter(lease('lock', 'mine'), claim('mine', { key })),
      () => store.inspect(key),
    ]) {
      const error: unknown = await call().catch((reason: unknown) => reason);
      expect(isStoreError(error) && error.reason).toBe('error');
      expect(String(error)).not.toContain(key);
    }
    expect(await observer.exists('lock')).toBe(0);
    const hold = { kind: 'claim', key, token: 'mine', leaseMs: MINUTE, ttlMs: MINUTE } as const;
    expect(await store.renew([hold])).toEqual([false]);
    const unclaim = { kind: 'unclaim', key, token: 'mine', ttlMs: MINUTE } as const;
    expect(await store.leave([complete('mine', { key }), unclaim])).toEqual([
      { kind: 'complete', state: 'stale' },
      { kind: 'unclaim', state: 'stale' },
    ]);
    expect(await observer.hgetall(key)).toEqual({ field: 'value' });
  });
});
