import { describe, expect, it } from '@jest/globals';
import {
  Body,
  type CallHandler,
  ConflictException,
  Controller,
  type ExecutionContext,
  ImATeapotException,
  Param,
  ParseIntPipe,
  Post,
  RequestTimeoutException,
  type Type,
  UseGuards,
  UseInterceptors,
  ValidationPipe,
} from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { IsInt } from 'class-validator';
import { fail, header, IdempotentBy, skip } from 'nestjs-cmdx';
import {
  catchError,
  concatMap,
  delay,
  EMPTY,
  filter,
  map,
  type Observable,
  of,
  repeat,
  retry,
  tap,
  throwError,
  timeout,
} from 'rxjs';
import { Door } from '../../support/door.js';
import { ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { byUser, deliverTwice, isReplay, keyed } from '../../support/http-idempotency.js';
import { until } from '../../support/time.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeAppsAfterEach();
refuseUnhandledRejections();

/** What an inner interceptor makes of a handler. */
type Inner = (next: CallHandler, context: ExecutionContext) => Observable<unknown>;

interface Orders {
  runs: number;
}

/** A controller with one idempotent handler below an interceptor. */
function ordersBelow(inner: Inner, body: (run: number) => unknown): Type<Orders> {
  @Controller()
  class OrdersBelow implements Orders {
    runs = 0;

    @Post('orders')
    @UseInterceptors({ intercept: (context, next) => inner(next, context) })
    @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
    async create(): Promise<unknown> {
      this.runs += 1;
      return body(this.runs);
    }
  }
  return OrdersBelow;
}

const order = (run: number): object => ({ order: run });

describe.each(ADAPTERS)('an inner interceptor, once the body has succeeded (%s)', (adapter) => {
  const start = async (inner: Inner) => {
    const target = ordersBelow(inner, order);
    const http = await startHttp(adapter, { controllers: [target] });
    return { http, orders: http.app.get<Orders>(target) };
  };

  it.each<[how: string, inner: Inner, status: number]>([
    [
      'throws as it maps',
      (next) =>
        next.handle().pipe(
          map(() => {
            throw new Error('the serializer broke');
          }),
        ),
      500,
    ],
    [
      'throws an exception of HTTP',
      (next) => next.handle().pipe(concatMap(() => throwError(() => new ImATeapotException()))),
      418,
    ],
    [
      'rejects later',
      (next) =>
        next.handle().pipe(
          concatMap(async () => {
            await Promise.resolve();
            throw new ConflictException();
          }),
        ),
      409,
    ],
  ])('that %s: the work is done, but has no answer', async (_how, inner, status) => {
    const { http, orders } = await start(inner);
    const { first, again } = await deliverTwice(http, '/orders', keyed('k'));
    expect(first.status).toBe(status);
    expect((first.body as { code?: string }).code).toBeUndefined();
    expect(again).toMatchObject({ status: 409, body: { code: 'duplicate' } });
    expect(orders.runs).toBe(1);
  });

  it.each<[how: string, inner: Inner]>([
    ['emits nothing', (next) => next.handle().pipe(filter(() => false))],
    ['completes empty', (next) => next.handle().pipe(concatMap(() => EMPTY))],
  ])('that %s: the work is done, but has no answer', async (_how, inner) => {
    const { http, orders } = await start(inner);
    const { again } = await deliverTwice(http, '/orders', keyed('k'));
    expect(again).toMatchObject({ status: 409, body: { code: 'duplicate' } });
    expect(orders.runs).toBe(1);
  });

  it.each<[how: string, inner: Inner]>([
    [
      'fails at its first attempt and tries again',
      (next) => {
        let attempts = 0;
        return next.handle().pipe(
          tap(() => {
            if ((attempts += 1) === 1) throw new Error('the serializer broke');
          }),
          retry(1),
        );
      },
    ],
    ['calls the handler again for more', (next) => next.handle().pipe(repeat(2))],
  ])('that %s: the second call is a duplicate of the first', async (_how, inner) => {
    const { http, orders } = await start(inner);
    const { first, again } = await deliverTwice(http, '/orders', keyed('k'));
    for (const answer of [first, again]) {
      expect(answer).toMatchObject({ status: 409, body: { code: 'duplicate' } });
    }
    expect(orders.runs).toBe(1);
  });

  it.each<[how: string, inner: Inner, text: string]>([
    [
      'answers something else for its own error',
      (next) =>
        next.handle().pipe(
          map(() => {
            throw new Error('the serializer broke');
          }),
          catchError(() => of('instead')),
        ),
      'instead',
    ],
    [
      'emits several values',
      (next) => next.handle().pipe(concatMap((value) => of('draft', value))),
      '{"order":1}',
    ],
    ['answers nothing', (next) => next.handle().pipe(map(() => undefined)), ''],
    [
      'answers later',
      (next) =>
        next.handle().pipe(
          delay(5),
          map((value) => ({ later: value })),
        ),
      '{"later":{"order":1}}',
    ],
  ])('that %s: that is the answer', async (_how, inner, text) => {
    const { http, orders } = await start(inner);
    const { first, again } = await deliverTwice(http, '/orders', keyed('k'));
    expect([first.status, first.text, isReplay(first)]).toEqual([201, text, false]);
    expect([again.status, again.text, isReplay(again)]).toEqual([201, text, true]);
    expect(orders.runs).toBe(1);
  });

  it.each<[how: string, again: () => unknown]>([
    ['fails', () => throwError(() => new ImATeapotException())],
    ['answers something else', () => of({ second: 'thoughts' })],
    ['answers nothing', () => EMPTY],
  ])('that %s for a duplicate is not listened to', async (_how, secondThoughts) => {
    let calls = 0;
    const { http, orders } = await start((next) =>
      next
        .handle()
        .pipe(
          concatMap((value) =>
            (calls += 1) === 1 ? of(value) : (secondThoughts() as Observable<unknown>),
          ),
        ),
    );
    const { first, again } = await deliverTwice(http, '/orders', keyed('k'));
    expect(calls).toBe(2);
    expect([again.status, again.text, isReplay(again)]).toEqual([201, first.text, true]);
    expect(orders.runs).toBe(1);
  });

  it.each<[how: string, late: () => Observable<unknown>, status: number]>([
    ['fails', () => throwError(() => new RequestTimeoutException()), 408],
    ['answers something else', () => of('accepted'), 201],
  ])(
    'that gives up while the body runs, and %s: it is never run again',
    async (_how, late, status) => {
      const door = new Door();
      const target = ordersBelow(
        (next) => next.handle().pipe(timeout({ each: 30, with: late })),
        () => door.pass(),
      );
      const http = await startHttp(adapter, { controllers: [target] });
      expect((await http.post('/orders', {}, keyed('k'))).status).toBe(status);
      expect(door.inside).toBe(1);
      expect(await http.post('/orders', {}, keyed('k'))).toMatchObject({
        status: 409,
        body: { code: 'in_progress' },
      });
      door.open();
      await until(() => http.telemetry.of('task_executed').length === 2, 'the end of the body');
      expect(await http.post('/orders', {}, keyed('k'))).toMatchObject({
        status: 409,
        body: { code: 'duplicate' },
      });
      expect(http.app.get<Orders>(target).runs).toBe(1);
    },
  );
});

describe.each(ADAPTERS)('a body that did not succeed (%s)', (adapter) => {
  it.each<[how: string, end: () => unknown, status: number]>([
    [
      'throws an exception of HTTP',
      () => {
        throw new ConflictException();
      },
      409,
    ],
    [
      'throws any error',
      () => {
        throw new Error('no');
      },
      500,
    ],
    ['promises an Observable that fails', () => throwError(() => new ConflictException()), 409],
    ['ends itself with fail()', () => fail('The account is closed.'), 422],
    ['ends itself with skip()', () => skip('closed today'), 202],
  ])('because it %s: the next delivery runs', async (_how, end, status) => {
    const target = ordersBelow(
      (next) => next.handle(),
      (run) => (run === 1 ? end() : order(run)),
    );
    const http = await startHttp(adapter, { controllers: [target] });
    const { first, again } = await deliverTwice(http, '/orders', keyed('k'));
    expect(first.status).toBe(status);
    expect([again.status, again.text, isReplay(again)]).toEqual([201, '{"order":2}', false]);
    const third = await http.post('/orders', {}, keyed('k'));
    expect([third.text, isReplay(third)]).toEqual(['{"order":2}', true]);
    expect(http.app.get<Orders>(target).runs).toBe(2);
  });

  it('runs again, whatever an interceptor has answered for it', async () => {
    const target = ordersBelow(
      (next) => next.handle().pipe(catchError(() => of('we are sorry'))),
      (run) => {
        if (run === 1) throw new Error('no');
        return order(run);
      },
    );
    const http = await startHttp(adapter, { controllers: [target] });
    const { first, again } = await deliverTwice(http, '/orders', keyed('k'));
    expect([first.status, first.text]).toEqual([201, 'we are sorry']);
    expect([again.text, isReplay(again)]).toEqual(['{"order":2}', false]);
  });
});

class NewOrder {
  @IsInt()
  amount!: number;
}

@Controller()
class Refusing {
  runs = 0;

  @Post('guarded')
  @UseGuards({ canActivate: () => false })
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async guarded(): Promise<void> {
    this.runs += 1;
  }

  @Post('piped/:id')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async piped(@Param('id', ParseIntPipe) _id: number): Promise<void> {
    this.runs += 1;
  }

  @Post('validated')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async validated(@Body(new ValidationPipe()) _body: NewOrder): Promise<void> {
    this.runs += 1;
  }

  @Post('cached')
  @UseInterceptors({ intercept: () => of('from the cache') })
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async cached(): Promise<void> {
    this.runs += 1;
  }
}

describe.each(ADAPTERS)('a request that never reaches the handler (%s)', (adapter) => {
  it.each([
    ['a guard says no', 'guarded', 403],
    ['a pipe says no', 'piped/x', 400],
    ['the body is invalid', 'validated', 400],
    ['an interceptor answers', 'cached', 201],
  ])('claims nothing: %s', async (_why, path, status) => {
    const http = await startHttp(adapter, { controllers: [Refusing] });
    for (let delivery = 0; delivery < 2; delivery++) {
      const answer = await http.post(`/${path}`, { amount: 'much' }, keyed('k'));
      expect([answer.status, isReplay(answer)]).toEqual([status, false]);
    }
    expect(http.store.size).toBe(0);
    expect(http.telemetry.of('idempotency_claimed')).toEqual([]);
    expect(http.app.get(Refusing).runs).toBe(0);
  });
});

describe.each(ADAPTERS)('an adapter that cannot tell the headers of an answer (%s)', (adapter) => {
  it('answers all the same, and the work is not done again', async () => {
    const target = ordersBelow((next) => next.handle(), order);
    const http = await startHttp(adapter, {
      controllers: [target],
      setUp: (app) => {
        app.get(HttpAdapterHost).httpAdapter.getHeader = () => {
          throw new Error('no such thing');
        };
      },
    });
    const { first, again } = await deliverTwice(http, '/orders', keyed('k'));
    expect(first).toMatchObject({ status: 201, body: { order: 1 } });
    expect(again).toMatchObject({ status: 409, body: { code: 'duplicate' } });
    expect(http.app.get<Orders>(target).runs).toBe(1);
  });
});
