import { describe, expect, it } from '@jest/globals';
import {
  type CallHandler,
  ClassSerializerInterceptor,
  Controller,
  type ExecutionContext,
  Injectable,
  SetMetadata,
  type Type,
  UseInterceptors,
} from '@nestjs/common';
import { ExternalContextCreator, Reflector } from '@nestjs/core';
import { Exclude } from 'class-transformer';
import { arg, DuplicateError, header, IdempotentBy, type IdempotencyOptions } from 'nestjs-cmdx';
import { catchError, concatMap, EMPTY, map, type Observable, of, throwError } from 'rxjs';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
refuseUnhandledRejections();

/** Every way but HTTP in which Nest calls a handler. */
const TRANSPORTS = ['rpc', 'ws', 'graphql'] as const;
type Transport = (typeof TRANSPORTS)[number];

type Handler = (...args: unknown[]) => Promise<unknown>;

/** A handler as its transport calls it: through Nest's own guards, interceptors and pipes. */
function handlerOf(application: Application, target: Type, transport: Transport): Handler {
  const instance = application.get<Record<string, Handler>>(target);
  const creator = application.get(ExternalContextCreator);
  // What a body throws here is no news for the log.
  application.module.useLogger(false);
  const callback = instance['handle'] as Handler;
  return creator.create(
    instance,
    callback,
    'handle',
    undefined,
    undefined,
    undefined,
    undefined,
    undefined,
    transport as never,
  );
}

type Inner = (
  next: CallHandler,
  context: ExecutionContext,
) => Observable<unknown> | Promise<Observable<unknown>>;

interface Orders {
  runs: number;
}

/** A class with one idempotent handler below an interceptor. */
function ordersBelow(
  inner: Inner,
  body: (run: number) => unknown,
  options: IdempotencyOptions = {},
): Type<Orders> {
  @Controller()
  class OrdersBelow implements Orders {
    runs = 0;

    @SetMetadata('microservices:pattern', ['orders'])
    @UseInterceptors({ intercept: (context, next) => inner(next, context) })
    @IdempotentBy(arg(0, 'id'), options)
    async handle(_message: { id: string }): Promise<unknown> {
      this.runs += 1;
      return body(this.runs);
    }
  }
  return OrdersBelow;
}

const pass: Inner = (next) => next.handle();

class Receipt {
  @Exclude()
  readonly secret = 'never shown';

  constructor(readonly run: number) {}

  get text(): string {
    return `receipt ${this.run}`;
  }
}

describe.each(TRANSPORTS)('a handler of %s', (transport) => {
  const start = async (target: Type<Orders>) => {
    const application = await boot({ controllers: [target] });
    const handle = handlerOf(application, target, transport);
    return { ...application, handle, orders: application.get(target) };
  };

  it('gives again what its interceptors made of the first value', async () => {
    const rich = { at: new Date(0), amount: 5n, bytes: Buffer.from('x'), seen: new Set(['a']) };
    let calls = 0;
    const { handle, orders } = await start(
      ordersBelow(
        (next) => next.handle().pipe(map((value) => ({ value, calls: (calls += 1) }))),
        (run) => ({ run, ...rich }),
      ),
    );
    const first = await handle({ id: 'k' });
    expect(first).toEqual({ value: { run: 1, ...rich }, calls: 1 });
    expect(await handle({ id: 'k' })).toEqual(first);
    expect(await handle({ id: 'other' })).toMatchObject({ value: { run: 2 } });
    expect(orders.runs).toBe(2);
  });

  it.each<[how: string, secondThoughts: () => Observable<unknown>]>([
    ['fails', () => throwError(() => new Error('no'))],
    ['answers something else', () => of('something else')],
    ['answers nothing', () => EMPTY],
  ])('does not listen to an interceptor that %s for a duplicate', async (_how, secondThoughts) => {
    let calls = 0;
    const { handle, orders } = await start(
      ordersBelow(
        (next) =>
          next
            .handle()
            .pipe(concatMap((value) => ((calls += 1) === 1 ? of(value) : secondThoughts()))),
        (run) => ({ run }),
      ),
    );
    expect(await handle({ id: 'k' })).toEqual({ run: 1 });
    expect(await handle({ id: 'k' })).toEqual({ run: 1 });
    expect([calls, orders.runs]).toEqual([2, 1]);
  });

  it('answers nothing for a duplicate that is skipped', async () => {
    const { handle, orders } = await start(
      ordersBelow(
        (next) => next.handle().pipe(map((value) => ({ value }))),
        (run) => ({ run }),
        { onDuplicate: 'skip' },
      ),
    );
    expect(await handle({ id: 'k' })).toEqual({ value: { run: 1 } });
    expect(await handle({ id: 'k' })).toBeUndefined();
    expect(orders.runs).toBe(1);
  });

  it('keeps nothing that a serializer takes out', async () => {
    const serializer = new ClassSerializerInterceptor(new Reflector());
    const { handle, store } = await start(
      ordersBelow(
        (next, context) => serializer.intercept(context, next),
        (run) => new Receipt(run),
      ),
    );
    const first = await handle({ id: 'k' });
    expect(first).toEqual({ run: 1 });
    expect(await handle({ id: 'k' })).toEqual(first);
    expect(await store.get('cmdx:idem:OrdersBelow.handle:k')).toContain('run');
    expect(await store.get('cmdx:idem:OrdersBelow.handle:k')).not.toContain('secret');
  });

  it('gives an instance again only of the class that it says it returns', async () => {
    const named = await start(ordersBelow(pass, (run) => new Receipt(run), { returns: Receipt }));
    expect(await named.handle({ id: 'k' })).toBeInstanceOf(Receipt);
    const again = (await named.handle({ id: 'k' })) as Receipt;
    expect(again).toEqual(new Receipt(1));
    expect(again.text).toBe('receipt 1');

    const nameless = await start(ordersBelow(pass, (run) => new Receipt(run)));
    expect(await nameless.handle({ id: 'k' })).toEqual(new Receipt(1));
    await expect(nameless.handle({ id: 'k' })).rejects.toThrow(DuplicateError);
    expect([named.orders.runs, nameless.orders.runs]).toEqual([1, 1]);
  });

  it('is done, but without a value, if an interceptor fails once the body has succeeded', async () => {
    const broken = new Error('the serializer broke');
    const { handle, orders } = await start(
      ordersBelow(
        (next) => next.handle().pipe(concatMap(() => throwError(() => broken))),
        (run) => ({ run }),
      ),
    );
    await expect(handle({ id: 'k' })).rejects.toBe(broken);
    // The interceptor is not asked about what it never got.
    await expect(handle({ id: 'k' })).rejects.toThrow(DuplicateError);
    expect(orders.runs).toBe(1);
  });

  it('runs again after its body has failed, whatever an interceptor made of that', async () => {
    const { handle } = await start(
      ordersBelow(
        (next) => next.handle().pipe(catchError(() => of('we are sorry'))),
        (run) => {
          if (run === 1) throw new Error('no');
          return { run };
        },
      ),
    );
    expect(await handle({ id: 'k' })).toBe('we are sorry');
    expect(await handle({ id: 'k' })).toEqual({ run: 2 });
    expect(await handle({ id: 'k' })).toEqual({ run: 2 });
  });

  it('and code that calls the method after it: the first value', async () => {
    const { handle, get, orders } = await start(
      ordersBelow(
        (next) => next.handle().pipe(map((value) => ({ value, at: new Date(0) }))),
        (run) => ({ run }),
      ),
    );
    const direct = get(orders.constructor as Type<{ handle: Handler }>);
    const first = await handle({ id: 'k' });
    expect(await direct.handle({ id: 'k' })).toEqual(first);
    expect(orders.runs).toBe(1);
  });

  it('but no client what code was answered before: no serializer has seen it', async () => {
    const serializer = new ClassSerializerInterceptor(new Reflector());
    const { handle, get, orders } = await start(
      ordersBelow(
        (next, context) => serializer.intercept(context, next),
        (run) => new Receipt(run),
        { returns: Receipt },
      ),
    );
    const direct = get(orders.constructor as Type<{ handle: Handler }>);
    const first = await direct.handle({ id: 'k' });
    expect(await direct.handle({ id: 'k' })).toEqual(first);
    await expect(handle({ id: 'k' })).rejects.toThrow(DuplicateError);
    expect(orders.runs).toBe(1);
  });
});

@Injectable()
class Resolver {
  runs = 0;

  @SetMetadata('graphql:resolver_type', 'Mutation')
  @IdempotentBy(header('Idempotency-Key'), { scope: userOf })
  async handle(_root: unknown, _args: unknown): Promise<object> {
    return { run: (this.runs += 1) };
  }
}

function userOf(_root: unknown, { user }: { user: string }): string {
  return user;
}

describe('a resolver of graphql', () => {
  it('finds the header in the request of its context, and compares no payload', async () => {
    const application = await boot({ providers: [Resolver] });
    const handle = handlerOf(application, Resolver, 'graphql');
    const call = (key: string, user: string, amount: number): Promise<unknown> =>
      handle(undefined, { user, amount }, { req: { headers: { 'idempotency-key': key } } }, {});
    expect(await call('k', 'ada', 1)).toEqual({ run: 1 });
    expect(await call('"k"', 'ada', 2)).toEqual({ run: 1 });
    expect(await call('k', 'bob', 1)).toEqual({ run: 2 });
  });
});
