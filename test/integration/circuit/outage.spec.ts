import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { type Duration, parseCircuit, SystemClock } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { endOf } from '../../support/ends.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { until, waitFor } from '../../support/time.js';
import { KEY, OPEN_MS, Upstream } from './upstream.js';

closeApplicationsAfterEach();

let server: RedisServer;
let proxy: TcpProxy;
let redis: Redis;
let application: Application;
let upstream: Upstream;

beforeEach(async () => {
  server = await startRedis();
  proxy = await TcpProxy.start(server.port);
  redis = new Redis(server.url);
});
afterEach(async () => {
  redis.disconnect();
  await proxy.stop();
  await server.stop();
});

async function bootUpstream(storeTimeout: Duration): Promise<void> {
  const store = new RedisStore({ url: proxy.url });
  const options = { store, clock: new SystemClock(), storeTimeout };
  application = await boot({ providers: [Upstream] }, options);
  upstream = application.get(Upstream);
  await until(async () => (await endOf(upstream.call())) === 'well', 'the store');
  application.telemetry.clear();
}

function sick(): never {
  throw new Error('sick');
}

async function record() {
  return parseCircuit((await redis.get(KEY)) ?? '');
}

describe('Redis is away', () => {
  beforeEach(() => bootUpstream('300ms'));

  it('when a call comes: it is refused, and told which ring could not be asked', async () => {
    const { runs } = upstream;
    proxy.refuse();
    await expect(upstream.call()).rejects.toMatchObject({
      code: 'store_unavailable',
      metadata: { policies: ['circuitBreaker'], operation: 'enter' },
    });
    expect(upstream.runs).toBe(runs);
    proxy.restore();
    await until(async () => (await endOf(upstream.call())) === 'well', 'Redis to be back');
  });

  it('when a call comes that would rather run: it runs, is not counted, and that is told', async () => {
    proxy.refuse();
    expect(await upstream.tolerant()).toBe('well');
    upstream.body = sick;
    expect(await endOf(upstream.tolerant())).toBe('sick');
    expect(application.telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual(
      Array.from({ length: 2 }, () => ({ policy: 'circuitBreaker', reason: 'store_error' })),
    );
    expect(application.telemetry.of('store_error')).toHaveLength(2);
    proxy.restore();
    await waitFor(100);
    expect(await redis.exists('cmdx:cb:tolerant')).toBe(0);
  });

  it('when a body ends: the caller gets what it got, and the call is not counted', async () => {
    for (const [body, end] of [
      [() => 'well', 'well'],
      [sick, 'sick'],
    ] as const) {
      const before = await record();
      upstream.body = () => {
        proxy.refuse();
        return body();
      };
      expect(await endOf(upstream.call())).toBe(end);
      expect(application.telemetry.of('store_error').at(-1)?.payload).toMatchObject({
        operation: 'leave',
        policies: ['circuitBreaker'],
      });
      proxy.restore();
      await until(async () => (await endOf(application.store.get('x'))) === undefined, 'Redis');
      expect(await record()).toEqual(before);
    }
  });

  it('and comes back empty: all is closed, and outcomes of before change nothing', async () => {
    upstream.body = sick;
    for (let call = 0; call < 2; call++) await endOf(upstream.call());
    await waitFor(OPEN_MS);
    upstream.body = async () => {
      await server.restart();
      return 'late';
    };
    expect(await upstream.call()).toBe('late');
    await until(async () => (await endOf(redis.get(KEY))) === null, 'Redis to be back');
    upstream.body = () => 'well';
    await until(async () => (await endOf(upstream.call())) === 'well', 'the store to be back');
    expect(await record()).toMatchObject({ state: 'closed', epoch: 0 });
  });
});

describe('a reply of Redis is lost', () => {
  beforeEach(() => bootUpstream('4s'));

  it('to the enter of a probe: it is let in, nobody else is, and its success closes the breaker', async () => {
    upstream.body = sick;
    for (let call = 0; call < 4; call++) await endOf(upstream.call());
    await waitFor(OPEN_MS);
    const door = new Door();
    upstream.body = async () => {
      await door.pass();
      return 'well';
    };
    proxy.loseReplyOf();
    const probe = upstream.call();
    await until(() => door.entered === 1, 'the probe to be inside');
    expect(await endOf(upstream.call())).toBe('circuit_open');
    door.open();
    expect(await probe).toBe('well');
    expect(await record()).toMatchObject({ state: 'closed', buckets: [] });
  });

  it('to the leave of a call: it is counted once', async () => {
    const counted = async (): Promise<number> =>
      (await record())?.buckets.reduce((sum, { calls }) => sum + calls, 0) ?? 0;
    const before = await counted();
    upstream.body = () => {
      proxy.loseReplyOf();
      return 'well';
    };
    expect(await upstream.call()).toBe('well');
    expect(await counted()).toBe(before + 1);
  });
});
