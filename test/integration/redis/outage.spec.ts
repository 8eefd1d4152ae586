import { Controller, Injectable, Logger, Module, Param, Post } from '@nestjs/common';
import type { INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { CmdxModule, LockWith, RateLimit, type StoreUnavailableError } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { RecordingTelemetry } from 'nestjs-cmdx/testing';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { settledWithin, until, waitFor } from '../../support/time.js';

const STORE_TIMEOUT_MS = 200;
const SETTLES_WITHIN_MS = STORE_TIMEOUT_MS + 100;
const RECOVERS_WITHIN_MS = 2_000;
const CLEAN_WITHIN_MS = 1_000;

@Injectable()
class Orders {
  body: () => Promise<string> = async () => 'shipped';

  @RateLimit((id: string) => id, { max: 1_000, per: '1h' })
  @LockWith((id: string) => id, { ttl: 600 })
  async ship(id: string): Promise<string> {
    void id;
    return this.body();
  }

  @LockWith((id: string) => id, { ttl: 600, wait: 30 })
  async claim(id: string): Promise<string> {
    return id;
  }

  @RateLimit((id: string) => id, { max: 1, per: '1h', onStoreError: 'run' })
  async tolerant(id: string): Promise<string> {
    return id;
  }

  @RateLimit((id: string) => id, { max: 1, per: '1h', onStoreError: 'run' })
  @LockWith((id: string) => id)
  async half(id: string): Promise<string> {
    return id;
  }
}

@Controller('orders')
class OrdersController {
  constructor(private readonly orders: Orders) {}

  @Post(':id')
  async ship(@Param('id') id: string): Promise<string> {
    return this.orders.ship(id);
  }
}

const nothing = (): void => undefined;
const silent = { log: nothing, error: nothing, warn: nothing, debug: nothing, verbose: nothing };

let server: RedisServer;
let proxy: TcpProxy;
let observer: Redis;
let client: Redis;
let app: INestApplication;
let orders: Orders;
let recording: RecordingTelemetry;

beforeEach(async () => {
  Logger.overrideLogger(false);
  server = await startRedis();
  proxy = await TcpProxy.start(server.port);
  observer = quiet(new Redis(server.port, '127.0.0.1', { retryStrategy: () => 20 }));
  client = quiet(new Redis(proxy.port, '127.0.0.1'));
  await boot();
  await recovered();
});

afterEach(async () => {
  server.thaw();
  await app.close();
  client.disconnect();
  observer.disconnect();
  await proxy.stop();
  await server.stop();
});

async function boot(): Promise<void> {
  recording = new RecordingTelemetry();

  @Module({
    imports: [
      CmdxModule.forRoot({
        store: new RedisStore({ client }),
        storeTimeout: '200ms',
        telemetry: [recording],
      }),
    ],
    providers: [Orders],
    controllers: [OrdersController],
  })
  class Application {}

  app = await NestFactory.create(Application);
  await app.listen(0, '127.0.0.1');
  orders = app.get(Orders);
}

/** An ioredis client without a listener writes its errors to the console. */
function quiet(redis: Redis): Redis {
  redis.on('error', () => undefined);
  return redis;
}

/** Calls a guarded method of a store that is down, and sees it refused in time and by name. */
async function refusedInTime(call: () => Promise<unknown>): Promise<StoreUnavailableError> {
  const refusal = call().then(
    () => undefined,
    (reason: unknown) => reason as StoreUnavailableError,
  );
  const error = await settledWithin(SETTLES_WITHIN_MS, refusal);
  expect(error).toMatchObject({ code: 'store_unavailable', status: 503, task: 'Orders.ship' });
  return error as StoreUnavailableError;
}

async function recovered(): Promise<void> {
  await until(
    () =>
      orders.ship('recovery').then(
        () => true,
        () => false,
      ),
    'a guarded call that works again',
    RECOVERS_WITHIN_MS,
  );
}

/** Nothing is left of runs that were told no. */
async function expectClean(ids: readonly string[]): Promise<void> {
  await waitFor(CLEAN_WITHIN_MS);
  for (const id of ids) {
    expect(await observer.get(`cmdx:lock:Orders.ship:${id}`)).toBeNull();
  }
}

const ids = ['o1', 'o2', 'o3', 'o4', 'o5'];

describe('Is an outage a clear refusal, and is nothing left of it?', () => {
  it('frozen: every call settles as 503, nothing is charged late, no lease is left', async () => {
    server.freeze();
    const base = await app.getUrl();
    const response = await fetch(`${base}/orders/o1`, { method: 'POST' });
    expect(response.status).toBe(503);
    expect(response.headers.get('retry-after')).toBe('1');
    expect(await response.json()).toEqual({
      statusCode: 503,
      error: 'Service Unavailable',
      message: 'The service is temporarily unavailable.',
      code: 'store_unavailable',
      retryAfter: 1,
    });
    const errors = await Promise.all(ids.map((id) => refusedInTime(() => orders.ship(id))));
    for (const error of errors) {
      expect(error.metadata).toMatchObject({ operation: 'enter', policies: ['rateLimit', 'lock'] });
      expect(error.cause).toBeInstanceOf(Error);
    }
    server.thaw();
    await recovered();
    await expectClean(ids);
    for (const id of ids) expect(await observer.get(`cmdx:rl:Orders.ship:${id}`)).toBeNull();
  });

  it('killed, and back after 3 s', async () => {
    await server.kill();
    await refusedInTime(() => orders.ship('o1'));
    await waitFor(3_000);
    await refusedInTime(() => orders.ship('o2'));
    await server.restart();
    await recovered();
    await expectClean(ids);
  }, 20_000);

  it('a network that swallows packets', async () => {
    proxy.hold('both');
    await Promise.all(ids.map((id) => refusedInTime(() => orders.ship(id))));
    proxy.restore();
    await recovered();
    await expectClean(ids);
    for (const id of ids) expect(await observer.get(`cmdx:rl:Orders.ship:${id}`)).toBeNull();
  });

  it('a network that swallows replies only: charges may stand, leases may not', async () => {
    proxy.hold('replies');
    await Promise.all(ids.map((id) => refusedInTime(() => orders.ship(id))));
    proxy.restore();
    await recovered();
    await expectClean(ids);
  });

  it('a reply cut off in mid-command is asked for again, and charged once', async () => {
    proxy.loseReplyOf(1, { only: 'evalsha' });
    expect(await orders.ship('o1')).toBe('shipped');
    await expectClean(['o1']);
    expect(await observer.get('cmdx:rl:Orders.ship:o1')).toBe('1');
  });

  it('a waiter for a lock is told of the outage, not of a busy lock', async () => {
    await observer.set('cmdx:lock:Orders.claim:o1', 'somebody', 'PX', 60_000);
    const waiting = orders.claim('o1').catch((error: unknown) => error);
    await waitFor(100);
    server.freeze();
    expect(await waiting).toMatchObject({ code: 'store_unavailable' });
  });
});

describe('Does the end of a run survive an outage?', () => {
  it('frozen exactly at release, ttl 600: the value is returned, and the lease is soon free', async () => {
    orders.body = async () => {
      server.freeze();
      return 'worth keeping';
    };
    expect(await settledWithin(SETTLES_WITHIN_MS, orders.ship('o1'))).toBe('worth keeping');
    expect(recording.of('store_error').at(-1)?.payload).toMatchObject({ operation: 'leave' });
    orders.body = async () => 'shipped';
    server.thaw();
    await until(
      () =>
        orders.ship('o1').then(
          () => true,
          () => false,
        ),
      'the lease to be free',
      3_000,
    );
  });
});

describe("Does onStoreError: 'run' run the body without the policy?", () => {
  it('runs when every policy of the trip says so, and tells', async () => {
    server.freeze();
    expect(await orders.tolerant('o1')).toBe('o1');
    expect(recording.of('policy_bypassed').map((event) => event.payload)).toEqual([
      { policy: 'rateLimit', reason: 'store_error' },
    ]);
  });

  it('refuses when one of them does not, and names the policies', async () => {
    server.freeze();
    await expect(orders.half('o1')).rejects.toMatchObject({
      code: 'store_unavailable',
      metadata: { policies: ['rateLimit', 'lock'] },
    });
  });
});

describe('Whose connection is whose?', () => {
  it('boots while the store is down with one warning, then refuses, then works', async () => {
    await app.close();
    await server.kill();
    const warnings: string[] = [];
    Logger.overrideLogger({ ...silent, warn: (message: string) => void warnings.push(message) });
    await settledWithin(2_000, boot());
    await until(() => warnings.length > 0, 'the warning');
    Logger.overrideLogger(false);
    expect(warnings).toEqual([expect.stringMatching(/^The store does not answer \(.+\)/)]);
    await refusedInTime(() => orders.ship('o1'));
    await server.restart();
    await recovered();
  });

  it('leaves the client it was handed open, and never uses it', async () => {
    const { length } = String(await observer.call('CLIENT', 'LIST'))
      .trim()
      .split('\n');
    await app.close();
    expect(client.status).toBe('ready');
    expect(await client.ping()).toBe('PONG');
    const after = String(await observer.call('CLIENT', 'LIST'))
      .trim()
      .split('\n');
    expect(after.length).toBe(length - 1);
  });
});
