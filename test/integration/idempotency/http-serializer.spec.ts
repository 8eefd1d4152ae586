import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import {
  ClassSerializerInterceptor,
  Controller,
  Injectable,
  Param,
  Post,
  SerializeOptions,
  UseInterceptors,
} from '@nestjs/common';
import { APP_INTERCEPTOR, Reflector } from '@nestjs/core';
import { Exclude, Expose } from 'class-transformer';
import { Redis } from 'ioredis';
import { header, IdempotentBy, input } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import {
  ADAPTERS,
  type AdapterName,
  closeAppsAfterEach,
  type HttpApp,
  type HttpScenario,
  startHttp,
} from '../../support/http-app.js';
import { byUser, deliverTwice, isReplay, keyed } from '../../support/http-idempotency.js';
import { borrowRedis } from '../../support/redis-server.js';

closeAppsAfterEach();

const SECRET = 'never shown';

class Receipt {
  @Exclude()
  readonly secret = SECRET;

  @Expose({ groups: ['auditors'] })
  readonly audit = SECRET;

  readonly at = new Date(0);

  constructor(readonly id: number) {}
}

@Injectable()
class Counter {
  runs = 0;
}

@Controller('receipts')
class Receipts {
  constructor(readonly counter: Counter) {}

  @Post('one')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async one(): Promise<Receipt> {
    return new Receipt((this.counter.runs += 1));
  }

  @Post('several')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async several(): Promise<object> {
    return { items: [new Receipt((this.counter.runs += 1))] };
  }

  @Post('plain')
  @SerializeOptions({ type: Receipt })
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async plain(): Promise<object> {
    return { ...new Receipt((this.counter.runs += 1)) };
  }

  /** Also called by code, which has no header. */
  @Post('order/:order')
  @IdempotentBy(input('order'), { returns: Receipt })
  async ofOrder(@Param('order') _order: string): Promise<Receipt> {
    return new Receipt((this.counter.runs += 1));
  }
}

@UseInterceptors(ClassSerializerInterceptor)
@Controller('receipts')
class SerializedReceipts extends Receipts {}

const PLACES = ['on the handler', 'as APP_INTERCEPTOR', 'by useGlobalInterceptors'] as const;

/** An application whose answers a serializer cleans. */
function serialized(place: (typeof PLACES)[number]): HttpScenario {
  switch (place) {
    case 'on the handler':
      return { controllers: [SerializedReceipts], providers: [Counter] };
    case 'as APP_INTERCEPTOR':
      return {
        controllers: [Receipts],
        providers: [Counter, { provide: APP_INTERCEPTOR, useClass: ClassSerializerInterceptor }],
      };
    case 'by useGlobalInterceptors':
      return {
        controllers: [Receipts],
        providers: [Counter],
        setUp: (app) =>
          void app.useGlobalInterceptors(new ClassSerializerInterceptor(app.get(Reflector))),
      };
  }
}

describe('what a serializer takes out of an answer', () => {
  let server: Awaited<ReturnType<typeof borrowRedis>>;
  let client: Redis;
  let applications = 0;

  beforeAll(async () => {
    server = await borrowRedis();
    client = new Redis(server.url);
  });
  afterAll(async () => {
    client.disconnect();
    await server.stop();
  });

  /** Starts it on Redis, with keys that no other test uses. */
  async function start(
    adapter: AdapterName,
    place: (typeof PLACES)[number],
  ): Promise<{ http: HttpApp; namespace: string }> {
    const namespace = `serializer:${process.pid}:${(applications += 1)}`;
    const http = await startHttp(adapter, {
      ...serialized(place),
      cmdx: {
        store: new RedisStore({ client }),
        defaults: { idempotency: { namespace } },
      },
    });
    return { http, namespace };
  }

  /** Everything that Redis holds for one application, byte by byte. */
  async function everythingOf(namespace: string): Promise<string> {
    const keys = await client.keys(`${namespace}:*`);
    expect(keys).not.toEqual([]);
    return (await client.mget(keys)).join('\n');
  }

  const combinations = ADAPTERS.flatMap((adapter) =>
    PLACES.map((place) => [adapter, place] as const),
  );

  it.each(combinations)('is in no answer, and not in Redis (%s, %s)', async (adapter, place) => {
    const { http, namespace } = await start(adapter, place);
    const at = '1970-01-01T00:00:00.000Z';
    for (const [path, body] of [
      ['one', { id: 1, at }],
      ['several', { items: [{ id: 2, at }] }],
      ['plain', { id: 3, at }],
    ] as const) {
      const { first, again } = await deliverTwice(http, `/receipts/${path}`, keyed('k'));
      expect(first.body).toEqual(body);
      expect([again.status, again.text, isReplay(again)]).toEqual([201, first.text, true]);
      expect(await everythingOf(namespace)).toContain(first.text);
    }
    expect(await everythingOf(namespace)).not.toContain(SECRET);
    expect(http.app.get(Counter).runs).toBe(3);
  });

  it.each(ADAPTERS)(
    'is given to no client after code has called the handler (%s)',
    async (adapter) => {
      const { http } = await start(adapter, 'as APP_INTERCEPTOR');
      const receipts = http.app.get(Receipts);
      const direct = await receipts.ofOrder('7');
      expect(direct.secret).toBe(SECRET);
      const { first, again } = await deliverTwice(http, '/receipts/order/7', {});
      for (const answer of [first, again]) {
        expect(answer).toMatchObject({ status: 409, body: { code: 'duplicate' } });
        expect(answer.text).not.toContain(SECRET);
      }
      // Code gets what it got.
      expect(await receipts.ofOrder('7')).toEqual(direct);
      expect(http.app.get(Counter).runs).toBe(1);
    },
  );

  it.each(ADAPTERS)('is not there for code after a client was answered (%s)', async (adapter) => {
    const { http } = await start(adapter, 'as APP_INTERCEPTOR');
    const answer = await http.post('/receipts/order/7');
    expect(await http.app.get(Receipts).ofOrder('7')).toEqual(answer.body);
    expect(answer.text).not.toContain(SECRET);
    expect(http.app.get(Counter).runs).toBe(1);
  });
});
