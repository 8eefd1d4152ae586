import { afterEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable, Logger, type LoggerService, Param, Post } from '@nestjs/common';
import { arg, header, IdempotentBy, input } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootMessage } from '../../support/definition.js';
import { ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { byUser, deliverTwice, keyed } from '../../support/http-idempotency.js';
import { waitFor } from '../../support/time.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

refuseUnhandledRejections();
closeApplicationsAfterEach();
closeAppsAfterEach();

function broken(): never {
  throw new Error('the disk of the log is full');
}

const brokenLogger: LoggerService = { log: broken, error: broken, warn: broken };

describe('a logger that throws when an answer cannot be kept', () => {
  afterEach(() => Logger.overrideLogger(false));

  it('costs a service neither its value nor the record', async () => {
    @Injectable()
    class Orders {
      runs = 0;

      @IdempotentBy(arg(0))
      async place(_id: string): Promise<() => number> {
        this.runs += 1;
        return () => 7;
      }
    }
    const app = await boot({ providers: [Orders] });
    Logger.overrideLogger(brokenLogger);
    const orders = app.get(Orders);
    expect((await orders.place('o-1'))()).toBe(7);
    await expect(orders.place('o-1')).rejects.toMatchObject({ code: 'duplicate' });
    expect(orders.runs).toBe(1);
  });

  it.each(ADAPTERS)('leaves no client without an answer (%s)', async (adapter) => {
    @Controller()
    class Orders {
      @Post()
      @IdempotentBy(header('Idempotency-Key'), { scope: byUser, maxBytes: 5 })
      async place(): Promise<object> {
        return { order: 'a long one' };
      }
    }
    const http = await startHttp(adapter, { controllers: [Orders] });
    Logger.overrideLogger(brokenLogger);
    const { first, again } = await deliverTwice(http, '/', keyed('k'));
    expect(first).toMatchObject({ status: 201, body: { order: 'a long one' } });
    expect(again).toMatchObject({ status: 409, body: { code: 'duplicate' } });
  });
});

it('a codec that answers promises which reject ends no process', async () => {
  @Injectable()
  class Orders {
    @IdempotentBy(arg(0), {
      codec: {
        encode: (() => Promise.reject(new Error('no codec'))) as never,
        decode: (text) => text,
      },
    })
    async place(_id: string): Promise<string> {
      return 'placed';
    }
  }
  const orders = (await boot({ providers: [Orders] })).get(Orders);
  expect(await orders.place('o-1')).toBe('placed');
  await waitFor(5);
  await expect(orders.place('o-1')).rejects.toMatchObject({ code: 'duplicate' });
});

describe('methods that share their keys by name', () => {
  it.each([true, false])(
    'must not be one of owned and one of unowned keys, which could read like them (owned first: %s)',
    async (ownedFirst) => {
      @Controller('mine')
      class Mine {
        @Post()
        @IdempotentBy(header('Idempotency-Key'), { scope: byUser, name: 'order' })
        async place(): Promise<string> {
          return 'the secret of ada';
        }
      }
      @Controller('open')
      class Open {
        @Post(':id')
        @IdempotentBy(input('id'), { name: 'order' })
        async place(@Param('id') _id: string): Promise<string> {
          return 'open';
        }
      }
      const controllers = ownedFirst ? [Mine, Open] : [Open, Mine];
      const message = await bootMessage(startHttp('express', { controllers }));
      expect(message).toContain('Open.place: @IdempotentBy: expected the option "scope"');
      expect(message).toContain('Mine.place');
    },
  );
});

it('a correlationId that fails in other words each time is told once', async () => {
  @Injectable()
  class Orders {
    @IdempotentBy(arg(0))
    async place(id: string): Promise<string> {
      return id;
    }
  }
  let asked = 0;
  const correlationId = (): string => {
    throw new Error(`nothing in request ${++asked}`);
  };
  const orders = (await boot({ providers: [Orders] }, { correlationId })).get(Orders);
  const told: unknown[] = [];
  const listen = (message: unknown) => void told.push(message);
  Logger.overrideLogger({ log: listen, error: listen, warn: listen });
  for (const id of ['a', 'b', 'c']) await orders.place(id);
  Logger.overrideLogger(false);
  expect(asked).toBe(3);
  expect(told).toHaveLength(1);
});
