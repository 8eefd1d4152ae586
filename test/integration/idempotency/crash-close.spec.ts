import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, it } from '@jest/globals';
import {
  type CallHandler,
  Controller,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
  Post,
  type Provider,
  UseInterceptors,
} from '@nestjs/common';
import { Redis } from 'ioredis';
import { arg, header, IdempotentBy, LockWith } from 'nestjs-cmdx';
import { ManualClock } from 'nestjs-cmdx/testing';
import { delayWhen, from } from 'rxjs';
import { closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { bootOnRedis } from '../../support/on-redis.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/time.js';

/** Where the answer of a handler is kept after its body. */
@Injectable()
class SlowAnswer implements NestInterceptor {
  constructor(private readonly door: Door) {}

  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(delayWhen(() => from(this.door.pass())));
  }
}

@Controller('orders')
class OrdersController {
  runs = 0;

  @Post()
  @UseInterceptors(SlowAnswer)
  @IdempotentBy(header('Idempotency-Key'), { scope: 'shared' })
  async ship(): Promise<string> {
    this.runs += 1;
    return 'shipped';
  }
}

@Injectable()
class Orders {
  runs = 0;
  body: () => unknown = () => undefined;

  @LockWith(arg(0), { ttl: '1h' })
  @IdempotentBy(arg(0))
  async ship(_id: string): Promise<string> {
    this.runs += 1;
    await this.body();
    return 'shipped';
  }
}

closeApplicationsAfterEach();
closeAppsAfterEach();

let server: RedisServer;
let redis: Redis;
let proxy: TcpProxy;

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.url);
  proxy = await TcpProxy.start(server.port);
});

beforeEach(() => redis.flushall());

afterAll(async () => {
  redis.disconnect();
  await proxy.stop();
  await server.stop();
});

const RECORD = 'cmdx:idem:Orders.ship:order-1';
const providers: Provider[] = [Orders];

it('The application closes between a body and its answer. Is the work done? It is, without an answer to replay', async () => {
  const door = new Door();
  const { app, post, store } = await startHttp('express', {
    controllers: [OrdersController],
    providers: [SlowAnswer, { provide: Door, useValue: door }],
    cmdx: { shutdownTimeout: '20ms' },
    options: { forceCloseConnections: true },
  });
  const request = post('/orders', {}, { 'idempotency-key': 'order-1' }).catch(() => 'cut off');
  await until(() => door.inside === 1, 'the answer on its way');
  const closing = app.close();
  const record = 'cmdx:idem:OrdersController.ship:order-1';
  await until(async () => (await store.get(record))?.startsWith('t:1:') ?? false, 'the tombstone');
  door.open();
  expect(await request).toBe('cut off');
  await closing;
  expect(await store.get(record)).toMatch(/^t:1:/);
  expect(app.get(OrdersController).runs).toBe(1);
});

it('The application closes while a call is still on its way in. Does its body begin? Never, and nothing stands', async () => {
  const clock = new ManualClock();
  const application = await bootOnRedis(proxy.url, providers, { clock, shutdownTimeout: 0 });
  const orders = application.get(Orders);
  await orders.ship('warm');
  proxy.hold('replies');
  const call = orders.ship('order-1').catch(({ code }: { code: string }) => code);
  await until(async () => (await redis.exists(RECORD)) === 1, 'the claim');
  const closing = application.close();
  await sleep(50);
  proxy.restore();
  expect(await call).toBe('shutting_down');
  await closing;
  expect(orders.runs).toBe(1);
  expect(await redis.keys('*:order-1')).toEqual([]);
  // Nor a timer that would renew the claim.
  expect(clock.pending).toBe(0);
});

it('The application closes while a save is outstanding. Is it sent once more? It is', async () => {
  const application = await bootOnRedis(proxy.url, providers, { storeTimeout: '300ms' });
  const orders = application.get(Orders);
  orders.body = () => proxy.refuse();
  expect(await orders.ship('order-1')).toBe('shipped');
  expect(await redis.get(RECORD)).toMatch(/^p:1:/);
  setTimeout(() => proxy.restore(), 20);
  await application.close();
  expect(await redis.get(RECORD)).toMatch(/^d:1:/);
  expect(await redis.keys('cmdx:lock:*')).toEqual([]);
});
