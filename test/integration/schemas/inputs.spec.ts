import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import type { StandardSchemaV1 } from '@standard-schema/spec';
import { type } from 'arktype';
import { lastValueFrom, Observable, of } from 'rxjs';
import {
  arg,
  CircuitBreaker,
  CircuitBreakers,
  currentInvocation,
  IdempotentBy,
  input,
  InputInvalidError,
  InputSchema,
  LockWith,
  perTask,
  RateLimit,
  RetryOn,
} from 'nestjs-cmdx';
import * as v from 'valibot';
import * as z from 'zod';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { OverheardStore } from '../../support/overheard-store.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
refuseUnhandledRejections();

interface Order {
  readonly id: string;
  readonly amount: number;
}

/** The same order in three languages: an id in capitals, an amount that may come as a text. */
const ORDERS: readonly (readonly [string, StandardSchemaV1<unknown, Order>])[] = [
  [
    'zod',
    z.object({ id: z.string().transform((id) => id.toUpperCase()), amount: z.coerce.number() }),
  ],
  [
    'valibot',
    v.object({
      id: v.pipe(
        v.string(),
        v.transform((id) => id.toUpperCase()),
      ),
      amount: v.pipe(v.union([v.string(), v.number()]), v.transform(Number), v.number()),
    }),
  ],
  [
    'arktype',
    type({
      id: type('string').pipe((id) => id.toUpperCase()),
      amount: type('string.numeric.parse').or('number'),
    }) as StandardSchemaV1<unknown, Order>,
  ],
];

/** As a caller without types would write it. */
const raw = (value: unknown): never => value as never;

describe.each(ORDERS)('what does a call see of an input that fits (%s)?', (_library, order) => {
  it('key resolvers, gates, limiters, fingerprints and the body: the parsed value', async () => {
    const seen: Record<string, unknown> = {};

    @Injectable()
    class Orders {
      @InputSchema(order)
      @RateLimit(input('id'), {
        max: 5,
        per: 60,
        limiter: ({ invocation }) => {
          seen['limiter'] = invocation.args[0];
          return { admitted: true };
        },
      })
      @LockWith((each: Order) => each.id, {
        if: (each: Order) => {
          seen['gate'] = each;
          return true;
        },
      })
      @IdempotentBy(arg(0, 'id'), {
        fingerprint: (each: Order) => {
          seen['fingerprint'] = each;
          return each;
        },
      })
      @RetryOn(Error, { if: 'never' })
      async place(each: Order, by: string): Promise<string> {
        seen['body'] = each;
        seen['invocation'] = currentInvocation()?.args;
        return `${by}: ${each.id} ${each.amount + 1}`;
      }

      never(): boolean {
        return false;
      }
    }

    const { get, telemetry } = await boot({ providers: [Orders] });
    const written = { id: 'a', amount: '5' };
    await expect(get(Orders).place(raw(written), 'ada')).resolves.toBe('ada: A 6');
    const parsed = { id: 'A', amount: 5 };
    expect(seen).toEqual({
      limiter: parsed,
      gate: parsed,
      fingerprint: parsed,
      body: parsed,
      invocation: [parsed, 'ada'],
    });
    expect(written).toEqual({ id: 'a', amount: '5' });
    expect(telemetry.of('lock_acquired')[0]?.payload.lockKey).toBe('cmdx:lock:Orders.place:A');
    expect(telemetry.of('rate_limit_admitted')[0]?.payload.rateLimitKey).toBe(
      'cmdx:rl:Orders.place:A',
    );
    expect(telemetry.of('idempotency_claimed')[0]?.payload.idempotencyKey).toBe(
      'cmdx:idem:Orders.place:A',
    );
  });
});

describe.each(ORDERS)('what does an input cost that does not fit (%s)?', (_library, order) => {
  @Injectable()
  class Orders {
    runs = 0;

    @InputSchema(order)
    @RateLimit(perTask, { max: 1, per: 60 })
    @CircuitBreaker('orders-api', { minimumCalls: 1, failureRate: 0.1 })
    @LockWith(input('id'))
    @IdempotentBy(input('id'))
    @RetryOn(Error)
    async place(each: Order): Promise<string> {
      this.runs += 1;
      return each.id;
    }
  }

  it('nothing: the store is not even asked, and the next call finds everything free', async () => {
    const store = new OverheardStore();
    const { get, cmdx, telemetry, module } = await boot({ providers: [Orders] }, { store });
    for (const wrong of [{ id: 5, amount: 5 }, { id: 'a' }, null, undefined, 'a']) {
      const result = await cmdx.execute(() => get(Orders).place(raw(wrong)));
      expect(result).toMatchObject({
        status: 'failed',
        state: 'interrupted',
        retries: 0,
        metadata: { code: 'input_invalid', issues: expect.any(Array) },
      });
      expect(result.cause).toBeInstanceOf(InputInvalidError);
    }
    expect(store.asked).toEqual([]);
    expect(get(Orders).runs).toBe(0);
    expect(new Set(telemetry.names)).toEqual(new Set(['task_started', 'task_executed']));
    expect(telemetry.names).toHaveLength(10);
    expect(await module.get(CircuitBreakers).inspect('cmdx:cb:orders-api')).toBeUndefined();
    await expect(get(Orders).place({ id: 'a', amount: 5 })).resolves.toBe('A');
    expect(telemetry.of('rate_limit_admitted')[0]?.payload.count).toBe(1);
  });
});

describe('what is said about an input that does not fit?', () => {
  @Injectable()
  class Orders {
    @InputSchema(z.object({ id: z.string('no text'), lines: z.array(z.int('no whole number')) }))
    async one(_order: { id: string; lines: number[] }): Promise<void> {}

    @InputSchema(z.string('no text'))
    async text(_text: string): Promise<void> {}

    @InputSchema([z.object({ id: z.string('no text') }), undefined, z.int('no whole number')])
    async several(_order: { id: string }, _by: string, _amount: number): Promise<void> {}
  }

  const issuesOf = async (call: Promise<unknown>): Promise<unknown> => {
    const error: unknown = await call.catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(InputInvalidError);
    return (error as InputInvalidError).metadata.issues;
  };

  it('every issue, with its path below the first argument', async () => {
    const { get } = await boot({ providers: [Orders] });
    expect(await issuesOf(get(Orders).one(raw({ id: 5, lines: [1, 'x', 1.5] })))).toEqual([
      { path: 'id', message: 'no text' },
      { path: 'lines.1', message: 'no whole number' },
      { path: 'lines.2', message: 'no whole number' },
    ]);
    expect(await issuesOf(get(Orders).text(raw(5)))).toEqual([{ path: '', message: 'no text' }]);
  });

  it('of several arguments all issues, with the position of each', async () => {
    const { get } = await boot({ providers: [Orders] });
    expect(await issuesOf(get(Orders).several(raw({ id: 5 }), 'ada', raw('x')))).toEqual([
      { path: '0.id', message: 'no text' },
      { path: '2', message: 'no whole number' },
    ]);
  });

  it('in the error: task, code, status, and a sentence with all of it', async () => {
    const { get } = await boot({ providers: [Orders] });
    const error: unknown = await get(Orders)
      .several(raw({ id: 5 }), 'ada', raw('x'))
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      name: 'InputInvalidError',
      code: 'input_invalid',
      task: 'Orders.several',
      message: 'Orders.several: invalid input: 0.id: no text; 2: no whole number',
    });
    expect((error as InputInvalidError).getStatus()).toBe(400);
    expect((error as InputInvalidError).getResponse()).toEqual({
      statusCode: 400,
      error: 'Bad Request',
      message: ['0.id: no text', '2: no whole number'],
      code: 'input_invalid',
    });
  });
});

describe('which argument does a schema check?', () => {
  const upper = z.string().transform((text) => text.toUpperCase());
  /** As `[, upper]` is one: there is nothing at 0, not even undefined. */
  const withGap = Object.assign<(typeof upper | undefined)[], object>([], { 1: upper });

  @Injectable()
  class Mail {
    @InputSchema(upper)
    async first(...texts: string[]): Promise<string[]> {
      return texts;
    }

    @InputSchema([upper])
    async listOfOne(...texts: string[]): Promise<string[]> {
      return texts;
    }

    @InputSchema([undefined, upper])
    async second(...texts: string[]): Promise<string[]> {
      return texts;
    }

    @InputSchema(withGap)
    async gap(...texts: string[]): Promise<string[]> {
      return texts;
    }

    @InputSchema([upper, upper.default('nobody')])
    async filled(...texts: string[]): Promise<string[]> {
      return texts;
    }

    @InputSchema([upper, upper.optional()])
    async optional(_first: string, _second?: string): Promise<unknown> {
      return currentInvocation()?.args;
    }
  }

  it.each<[keyof Mail, string[], string[]]>([
    ['first', ['a', 'b', 'c'], ['A', 'b', 'c']],
    ['listOfOne', ['a', 'b'], ['A', 'b']],
    ['second', ['a', 'b', 'c'], ['a', 'B', 'c']],
    ['gap', ['a', 'b', 'c'], ['a', 'B', 'c']],
    ['filled', ['a'], ['A', 'nobody']],
    ['optional', ['a', 'b'], ['A', 'B']],
  ])('%s: %j is seen as %j', async (method, written, seen) => {
    const { get } = await boot({ providers: [Mail] });
    const call = get(Mail)[method] as (...texts: string[]) => Promise<string[]>;
    expect(await call.apply(get(Mail), written)).toEqual(seen);
  });

  it('one that is missing, too', async () => {
    const { get } = await boot({ providers: [Mail] });
    await expect(get(Mail).first()).rejects.toBeInstanceOf(InputInvalidError);
    await expect(get(Mail).optional('a')).resolves.toEqual(['A', undefined]);
  });
});

describe('may a schema take its time?', () => {
  const free = z.string().refine(async (name) => name !== 'ada', 'taken');
  const broken = new Error('no database');
  const rejecting: StandardSchemaV1<string> = {
    '~standard': { version: 1, vendor: 'test', validate: () => Promise.reject(broken) },
  };
  const throwing: StandardSchemaV1<string> = {
    '~standard': {
      version: 1,
      vendor: 'test',
      validate: () => {
        throw broken;
      },
    },
  };

  @Injectable()
  class Accounts {
    runs = 0;

    @InputSchema(free)
    @LockWith(arg(0))
    async open(name: string): Promise<string> {
      this.runs += 1;
      return name;
    }

    @InputSchema([free, z.string()])
    async both(..._names: string[]): Promise<void> {
      this.runs += 1;
    }

    @InputSchema(rejecting)
    async rejects(_name: string): Promise<void> {
      this.runs += 1;
    }

    @InputSchema(throwing)
    @LockWith(arg(0))
    async throws(_name: string): Promise<void> {
      this.runs += 1;
    }

    @InputSchema([rejecting, rejecting, throwing])
    async allBroken(..._names: string[]): Promise<void> {
      this.runs += 1;
    }
  }

  it('yes: nothing is asked of the store before it has answered', async () => {
    const store = new OverheardStore();
    const { get } = await boot({ providers: [Accounts] }, { store });
    await expect(get(Accounts).open('ada')).rejects.toMatchObject({
      metadata: { issues: [{ path: '', message: 'taken' }] },
    });
    expect(store.asked).toEqual([]);
    await expect(get(Accounts).open('bob')).resolves.toBe('bob');
    expect(store.asked).toEqual(['lease', 'release']);
  });

  it('yes: beside one that does not', async () => {
    const { get } = await boot({ providers: [Accounts] });
    await expect(get(Accounts).both('ada', raw(5))).rejects.toMatchObject({
      metadata: { issues: [{ path: '0', message: 'taken' }, { path: '1' }] },
    });
  });

  it.each(['rejects', 'throws'] as const)('one that %s: the caller gets that', async (method) => {
    const store = new OverheardStore();
    const { get, telemetry } = await boot({ providers: [Accounts] }, { store });
    await expect(get(Accounts)[method]('ada')).rejects.toBe(broken);
    expect([store.asked, get(Accounts).runs]).toEqual([[], 0]);
    expect(telemetry.names).toEqual(['task_started', 'task_executed']);
  });

  it('several that are broken: one of their errors, and nothing is left unheard', async () => {
    const { get } = await boot({ providers: [Accounts] });
    await expect(get(Accounts).allBroken('a', 'b', 'c')).rejects.toBe(broken);
    expect(get(Accounts).runs).toBe(0);
  });
});

describe('what does a subclass make of its base’s schema?', () => {
  class Base {
    seen: unknown;

    @InputSchema(z.object({ id: z.string().transform((id) => `${id}!`) }))
    async place(order: { id: string }): Promise<void> {
      this.seen = order;
    }
  }
  @Injectable()
  class Plain extends Base {}
  @Injectable()
  class Undecorated extends Base {
    override async place(order: { id: string }): Promise<void> {
      return super.place(order);
    }
  }
  @Injectable()
  class Inherits extends Base {
    @InputSchema()
    override async place(order: { id: string }): Promise<void> {
      return super.place(order);
    }
  }
  @Injectable()
  class Replaces extends Base {
    @InputSchema(z.looseObject({ id: z.string().transform((id) => `${id}?`) }))
    override async place(order: { id: string }): Promise<void> {
      return super.place(order);
    }
  }
  @Injectable()
  class Off extends Base {
    @InputSchema(false)
    override async place(order: { id: string }): Promise<void> {
      return super.place(order);
    }
  }

  it.each([
    ['nothing, without an override', Plain, { id: 'a!' }],
    // Once, although super.place() is guarded as well.
    ['nothing, with one that is not decorated', Undecorated, { id: 'a!' }],
    ['nothing, with ()', Inherits, { id: 'a!' }],
    ['another one', Replaces, { id: 'a?', more: 1 }],
    ['none, with false', Off, { id: 'a', more: 1 }],
  ])('%s', async (_what, Sub, seen) => {
    const { get } = await boot({ providers: [Sub] });
    await get(Sub).place(raw({ id: 'a', more: 1 }));
    expect(get(Sub).seen).toEqual(seen);
  });
});

describe('may the input of a stream be checked?', () => {
  @Injectable()
  class Feed {
    runs = 0;

    @InputSchema(z.coerce.number())
    @LockWith(arg(0))
    from(start: number): Observable<number> {
      this.runs += 1;
      return of(start, start + 1);
    }

    @InputSchema(z.string().refine(async (text) => text !== 'no', 'no'))
    later(text: string): Observable<string> {
      return of(text);
    }
  }

  it('yes: at each subscription, before anything is asked of the store', async () => {
    const store = new OverheardStore();
    const { get } = await boot({ providers: [Feed] }, { store });
    await expect(lastValueFrom(get(Feed).from(raw('5')))).resolves.toBe(6);
    expect(store.asked).toEqual(['lease', 'release']);
    const wrong = get(Feed).from(raw('x'));
    await expect(lastValueFrom(wrong)).rejects.toBeInstanceOf(InputInvalidError);
    await expect(lastValueFrom(wrong)).rejects.toBeInstanceOf(InputInvalidError);
    expect([store.asked.length, get(Feed).runs]).toEqual([2, 1]);
  });

  it('yes: by one that takes its time', async () => {
    const { get } = await boot({ providers: [Feed] });
    await expect(lastValueFrom(get(Feed).later('yes'))).resolves.toBe('yes');
    await expect(lastValueFrom(get(Feed).later('no'))).rejects.toBeInstanceOf(InputInvalidError);
  });
});
