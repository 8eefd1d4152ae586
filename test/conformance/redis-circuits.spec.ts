import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import {
  type CircuitStep,
  Deadline,
  type EnterReply,
  type EnterStep,
  isStoreError,
  type LeaveReply,
  type LeaveStep,
  parseCircuit,
} from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { circuitStep, outcomeStep } from '../support/circuit-steps.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until, waitFor } from '../support/time.js';

const FAILURE = { success: false } as const;
const COUNTED = { kind: 'outcome', state: 'counted' } as const;
const STALE = { kind: 'outcome', state: 'stale' } as const;

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

function enter(...steps: EnterStep[]): Promise<EnterReply[]> {
  return store.enter(steps, Deadline.after(2_000));
}

async function leave(step: LeaveStep): Promise<LeaveReply | undefined> {
  const [reply] = await store.leave([step]);
  return reply;
}

async function record() {
  const found = parseCircuit((await observer.get('circuit')) ?? '');
  if (!found) throw new Error('expected the record of a breaker');
  return found;
}

/** Opens the breaker, and lets its time pass. */
async function tripped(options: Partial<CircuitStep> = {}): Promise<CircuitStep> {
  await leave(outcomeStep({ ...FAILURE, openMs: 1 }));
  await waitFor(5);
  return circuitStep(options);
}

async function reasonOf(failed: Promise<unknown>): Promise<string> {
  const error: unknown = await failed.catch((reason: unknown) => reason);
  return isStoreError(error) ? error.reason : 'no error of a store';
}

describe('when a reply about a breaker is lost', () => {
  it('is a probe let in once, with the permit that it has already?', async () => {
    const step = await tripped({ permits: 2 });
    proxy.loseReplyOf();
    expect(await enter(step)).toMatchObject([{ admitted: true, state: 'half_open' }]);
    expect((await record()).permits).toHaveLength(1);
    expect(await enter({ ...step, token: 'two' })).toMatchObject([{ admitted: true }]);
    expect(await enter({ ...step, token: 'three' })).toMatchObject([{ admitted: false }]);
  });

  it('the same among other steps, where a charge must not happen again?', async () => {
    const step = await tripped();
    const window = { kind: 'fixed_window', key: 'window', max: 5, windowMs: 60_000 } as const;
    const lease = { kind: 'lease', key: 'lease', token: step.token, ttlMs: 60_000 } as const;
    proxy.loseReplyOf();
    expect(await enter(window, step, lease)).toMatchObject([
      { admitted: true, count: 1 },
      { admitted: true, state: 'half_open' },
      { admitted: true },
    ]);
    expect((await record()).permits).toHaveLength(1);
    expect(await observer.get('window')).toBe('1');
  });

  it('is the permit of a caller who was told of an error given back?', async () => {
    const step = await tripped();
    proxy.loseReplyOf(1, { andRefuse: true });
    expect(await reasonOf(store.enter([step], Deadline.after(300)))).toBe('disconnected');
    expect((await record()).permits).toHaveLength(1);
    proxy.restore();
    await until(async () => (await record()).permits.length === 0, 'the permit to be free');
    expect(await enter({ ...step, token: 'next' })).toMatchObject([{ admitted: true }]);
  });

  it('is a call counted once?', async () => {
    await leave(outcomeStep({ ...FAILURE, minimumCalls: 3 }));
    proxy.loseReplyOf();
    await leave(outcomeStep({ ...FAILURE, minimumCalls: 3 }));
    expect((await record()).buckets).toMatchObject([{ calls: 2, failures: 2 }]);
  });

  it('does a failure that opened it open it once, for as long as it said?', async () => {
    proxy.loseReplyOf();
    expect(await leave(outcomeStep(FAILURE))).toEqual(STALE);
    expect(await record()).toMatchObject({ state: 'open', opens: 1 });
  });

  it('is a probe that came back counted once?', async () => {
    const step = await tripped({ permits: 2 });
    const [probe] = await enter(step);
    const epoch = probe?.kind === 'circuit' ? probe.epoch : -1;
    proxy.loseReplyOf();
    await leave(outcomeStep({ epoch, permits: 2 }));
    expect(await record()).toMatchObject({ state: 'half_open', successes: 1, permits: [] });
  });

  it('is one counted whose outcome never got there?', async () => {
    const step = await tripped({ permits: 2 });
    const [probe] = await enter(step);
    const epoch = probe?.kind === 'circuit' ? probe.epoch : -1;
    proxy.cut();
    expect(await leave(outcomeStep({ epoch, permits: 2 }))).toEqual(COUNTED);
    expect(await record()).toMatchObject({ state: 'half_open', successes: 1, permits: [] });
  });

  it('is a permit given back once, and not that of the next?', async () => {
    const step = await tripped();
    await enter(step);
    proxy.loseReplyOf();
    const unpermit = { kind: 'unpermit', key: step.key, token: step.token, ttlMs: 60_000 } as const;
    expect(await leave(unpermit)).toEqual({ kind: 'unpermit', returned: true });
    await enter({ ...step, token: 'next' });
    await leave(unpermit);
    expect((await record()).permits).toMatchObject([{ token: 'next' }]);
  });

  it('is a permit that could not be given back given back later, and an outcome never told twice?', async () => {
    const step = await tripped();
    await enter(step);
    store.useTimeout(200);
    proxy.refuse();
    const unpermit = { kind: 'unpermit', key: step.key, token: step.token, ttlMs: 60_000 } as const;
    const other = outcomeStep({ ...FAILURE, key: 'other', minimumCalls: 5 });
    expect(await reasonOf(store.leave([other, unpermit]))).toBe('disconnected');
    proxy.restore();
    await until(async () => (await record()).permits.length === 0, 'the permit to be free');
    expect(await observer.exists('other')).toBe(0);
  });

  it('is of a probe that nobody could be told of only the permit given back?', async () => {
    const step = await tripped();
    const [probe] = await enter(step);
    const epoch = probe?.kind === 'circuit' ? probe.epoch : -1;
    store.useTimeout(200);
    proxy.refuse();
    const success = outcomeStep({ epoch, probeMs: step.probeMs });
    expect(await reasonOf(store.leave([success]))).toBe('disconnected');
    proxy.restore();
    await until(async () => (await record()).permits.length === 0, 'the permit to be free');
    expect(await record()).toMatchObject({ state: 'half_open', epoch, successes: 0 });
  });
});

describe('when Redis has no room for a breaker', () => {
  afterEach(() => observer.config('SET', 'maxmemory', '0'));

  it('does a probe run that could not be written down? No: the next would run as well', async () => {
    const step = await tripped();
    await observer.config('SET', 'maxmemory', '1');
    expect(await reasonOf(enter(step))).toBe('error');
    await observer.config('SET', 'maxmemory', '0');
    expect(await record()).toMatchObject({ state: 'open', permits: [] });
    expect(await enter(step)).toMatchObject([{ admitted: true, transition: 'half_opened' }]);
  });

  it('do those pass who need no room, and are the others refused?', async () => {
    await leave(outcomeStep({ minimumCalls: 2 }));
    await leave(outcomeStep({ ...FAILURE, key: 'open' }));
    await observer.config('SET', 'maxmemory', '1');
    expect(await enter(circuitStep())).toMatchObject([{ admitted: true, state: 'closed' }]);
    expect(await enter(circuitStep({ key: 'open' }))).toMatchObject([{ admitted: false }]);
  });

  it('is the rest given back, although a call could not be counted?', async () => {
    const lease = { kind: 'lease', key: 'lease', token: 'token', ttlMs: 60_000 } as const;
    await enter(lease);
    await observer.config('SET', 'maxmemory', '1');
    const steps: LeaveStep[] = [outcomeStep(FAILURE), { ...lease, kind: 'release' }];
    expect(await reasonOf(store.leave(steps))).toBe('error');
    expect(await observer.exists('lease')).toBe(0);
    await observer.config('SET', 'maxmemory', '0');
    await waitFor(50);
    expect(await observer.exists('circuit')).toBe(0);
  });
});

describe('when the key of a breaker holds no text', () => {
  it('is it an error that names no key, and does nothing else happen?', async () => {
    const key = 'a-hash';
    await observer.hset(key, 'field', 'value');
    const lease = { kind: 'lease', key: 'lease', token: 'token', ttlMs: 60_000 } as const;
    const error: unknown = await enter(lease, circuitStep({ key })).catch((reason) => reason);
    expect(isStoreError(error) && error.reason).toBe('error');
    expect(String(error)).not.toContain(key);
    expect(await observer.exists('lease')).toBe(0);
    expect(await leave(outcomeStep({ ...FAILURE, key }))).toEqual(STALE);
    expect(await leave({ kind: 'unpermit', key, token: 'token', ttlMs: 1_000 })).toEqual({
      kind: 'unpermit',
      returned: false,
    });
    expect(await observer.hgetall(key)).toEqual({ field: 'value' });
  });
});

describe('what does a breaker in Redis hold against the time of the server?', () => {
  /** Ten buckets of ten days: no test lives to see the next. */
  const WINDOW_MS = 100 * 24 * 60 * 60 * 1_000;
  const BUCKET_MS = WINDOW_MS / 10;

  it.each([
    ['nine buckets ago: they open it', 9, 'opened'],
    ['ten buckets ago: they are not counted any more', 10, undefined],
  ])('failures of %s', async (_what, age, transition) => {
    const [seconds] = await observer.time();
    const slot = Math.floor((Number(seconds) * 1_000) / BUCKET_MS) - age;
    await observer.set('circuit', `c:0:0:0:0|${slot},9,9;|`, 'PX', WINDOW_MS);
    const reply = await leave(outcomeStep({ ...FAILURE, minimumCalls: 10, windowMs: WINDOW_MS }));
    expect(reply).toMatchObject({ state: 'counted' });
    expect(reply).toEqual(transition ? expect.objectContaining({ transition }) : COUNTED);
  });

  it('each refusal says how long, until the very millisecond in which a probe is let in', async () => {
    for (let round = 0; round < 20; round++) {
      await observer.flushall();
      await leave(outcomeStep({ ...FAILURE, openMs: 10 }));
      let [reply] = await enter(circuitStep());
      while (reply && !reply.admitted) {
        expect(reply).toMatchObject({ state: 'open', retryMs: expect.any(Number) });
        [reply] = await enter(circuitStep());
      }
      expect(reply).toMatchObject({ state: 'half_open', transition: 'half_opened' });
    }
  });
});
