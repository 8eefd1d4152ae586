import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { Controller, Get, Injectable, Logger, Res } from '@nestjs/common';
import {
  CircuitBreaker,
  type CircuitBreakerOptions,
  CircuitBreakers,
  type CmdxModuleOptions,
  LockWith,
  RetryOn,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootMessage, definitionMessage } from '../../support/definition.js';
import { endOf } from '../../support/ends.js';

closeApplicationsAfterEach();
afterEach(() => void jest.restoreAllMocks());

/** A decorator as plain JavaScript may apply it, to what TypeScript would refuse. */
type Loose = (...applied: unknown[]) => unknown;
const loose = (decorator: unknown): Loose => decorator as Loose;
const breaker = loose(CircuitBreaker);

class Accounts {
  async reconcile(): Promise<void> {}
}

function onMethod(...written: readonly unknown[]): string {
  const descriptor = Object.getOwnPropertyDescriptor(Accounts.prototype, 'reconcile');
  return definitionMessage(() =>
    loose(breaker(...written))(Accounts.prototype, 'reconcile', descriptor),
  );
}

/** A service with one method that carries the decorator. */
function guarded(name: string, ...written: readonly unknown[]) {
  const Service = class {
    async call(): Promise<unknown> {
      throw new Error('sick');
    }
  };
  Object.defineProperty(Service, 'name', { value: name });
  const descriptor = Object.getOwnPropertyDescriptor(Service.prototype, 'call') ?? {};
  const replaced = loose(breaker(...written))(Service.prototype, 'call', descriptor);
  Object.defineProperty(Service.prototype, 'call', replaced as PropertyDescriptor);
  Injectable()(Service);
  return Service;
}

describe('how may @CircuitBreaker be written?', () => {
  it.each([
    ['a number', [5], '(5)'],
    ['null', [null], '(null)'],
    ['true', [true], '(true)'],
    ['a key and a text', ['key', 'other'], '("key", "other")'],
    ['a key and null', ['key', null], '("key", null)'],
    ['false and options', [false, { permits: 1 }], '(false, an object (Object))'],
    ['options twice', [{ permits: 1 }, { permits: 1 }], '(an object (Object), an object (Object))'],
  ])('not with %s', (_what, written, shown) => {
    expect(onMethod(...written)).toBe(
      `Accounts.reconcile: @CircuitBreaker: expected (key, options), (key), (options), (false) or (), got ${shown}`,
    );
  });

  const COUNT = 'a whole number from 1';
  const SHARE = 'a number above 0 and at most 1';
  const TIME = 'more than zero seconds';
  const WINDOW = '10 milliseconds or more';
  const ERRORS = 'an error class, a predicate, or a list of them';
  it.each([
    ['failureRate', 0, SHARE, '0'],
    ['failureRate', 1.01, SHARE, '1.01'],
    ['failureRate', -0.5, SHARE, '-0.5'],
    ['failureRate', Number.NaN, SHARE, 'NaN'],
    ['failureRate', '50%', SHARE, '"50%"'],
    ['failureRate', 50, SHARE, '50'],
    ['minimumCalls', 0, COUNT, '0'],
    ['minimumCalls', 2.5, COUNT, '2.5'],
    ['minimumCalls', Infinity, COUNT, 'Infinity'],
    ['permits', 0, COUNT, '0'],
    ['permits', -1, COUNT, '-1'],
    ['permits', '1', COUNT, '"1"'],
    ['window', 0, TIME, '0'],
    ['window', Number.NaN, TIME, 'NaN'],
    ['window', 0.009, WINDOW, '0.009'],
    ['window', '9ms', WINDOW, '"9ms"'],
    ['openFor', -1, TIME, '-1'],
    ['openFor', 'soon', TIME, '"soon"'],
    ['maxOpenFor', Infinity, TIME, 'Infinity'],
    ['probeTimeout', null, TIME, 'null'],
    ['onOpen', 'run', "'fail' or 'skip'", '"run"'],
    ['onBlank', 'skip', "'bypass' or 'fail'", '"skip"'],
    ['onStoreError', 'skip', "'fail' or 'run'", '"skip"'],
    ['ignore', 'TypeError', ERRORS, '"TypeError"'],
    ['ignore', [], ERRORS, 'an array of 0'],
    ['failOn', [TypeError, 429], ERRORS, 'an array of 2'],
    ['failOn', null, ERRORS, 'null'],
    ['name', '', 'a non-empty string without a ":"', '""'],
    ['name', 'a:b', 'a non-empty string without a ":"', '"a:b"'],
    ['namespace', '', 'a non-empty string', '""'],
    ['if', 1, 'a boolean, the name of a method, a function or an object with call()', '1'],
    ['stream', 'yes', 'true or false', '"yes"'],
  ])('not with the option %s: %p', (option, value, expected, got) => {
    const options = { [option]: value };
    for (const written of [[options], ['key', options]]) {
      const message = onMethod(...written);
      expect(message).toContain(
        `Accounts.reconcile: @CircuitBreaker option "${option}": expected ${expected}`,
      );
      expect(message.endsWith(`got ${got}`)).toBe(true);
    }
    expect(definitionMessage(() => loose(breaker(options))(Accounts))).toContain(
      `Accounts: @CircuitBreaker option "${option}": expected ${expected}`,
    );
  });

  it('with a window of ten milliseconds, one for each bucket', async () => {
    await boot({
      providers: [guarded('Brief', { window: '10ms' }), guarded('Too', { window: 0.01 })],
    });
  });

  it('not with an option that there is none of; those that there are get listed', () => {
    const message = onMethod({ threshold: 0.5 });
    expect(message).toContain('Accounts.reconcile: @CircuitBreaker: unknown option "threshold"');
    for (const option of ['failureRate', 'minimumCalls', 'window', 'openFor', 'permits']) {
      expect(message).toContain(option);
    }
  });

  it('not on a class of which it reaches no method', async () => {
    @Injectable()
    @CircuitBreaker('idle')
    class Idle {
      async send(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Idle] }))).toContain(
      'Idle: @CircuitBreaker on the class reaches none of its methods',
    );
  });

  it('not with a skip on a handler that answers by itself', async () => {
    @Controller('raw')
    class Raw {
      @Get()
      @(CircuitBreaker('raw', { onOpen: 'skip' }) as MethodDecorator)
      async raw(@Res() _response: unknown): Promise<void> {}
    }
    expect(await bootMessage(boot({ controllers: [Raw] }))).toContain(
      'Raw.raw: @CircuitBreaker: expected a handler that Nest answers with its value, because a refusal skips the body',
    );
  });
});

describe('what is a shared name?', () => {
  it.each([
    ['an empty text', ['']],
    ['a text with a colon', ['payments:api']],
  ])('not %s', async (_what, written) => {
    expect(await bootMessage(boot({ providers: [guarded('Shop', ...written)] }))).toBe(
      `Shop.call: @CircuitBreaker: expected a non-empty shared name without a ":", got ${JSON.stringify(written[0])}`,
    );
  });

  it('not two different ones', async () => {
    const Shop = guarded('Shop', 'payments', { name: 'orders' });
    expect(await bootMessage(boot({ providers: [Shop] }))).toContain(
      'Shop.call: @CircuitBreaker: expected one shared name, got "payments"',
    );
    await boot({ providers: [guarded('Shop', 'payments', { name: 'payments' })] });
  });
});

describe('do the methods that share a breaker have to agree?', () => {
  const differing: readonly (readonly [keyof CircuitBreakerOptions, unknown, unknown, unknown])[] =
    [
      ['failureRate', 0.5, 0.4, 0.5],
      ['minimumCalls', 10, 5, 10],
      ['window', 60, 30, '1m'],
      ['openFor', 30, '31s', '30s'],
      ['maxOpenFor', 600, 601, '10m'],
      ['permits', 1, 2, 1],
      ['probeTimeout', 60, '59s', '60000ms'],
    ];

  it.each(differing)(
    '%s: yes; the same in other words is no other',
    async (option, own, other, same) => {
      const first = guarded('First', 'payments');
      const second = guarded('Second', { name: 'payments', [option]: other });
      const message = await bootMessage(boot({ providers: [first, second] }));
      expect(message).toContain(
        `@CircuitBreaker option "${option}": expected ${String(own)} as on`,
      );
      expect(message).toContain('which shares the name "payments"');
      await boot({ providers: [first, guarded('Third', 'payments', { [option]: same })] });
    },
  );

  it('what they do with a refusal and which errors they mean is their own', async () => {
    const own = {
      onOpen: 'skip',
      ignore: TypeError,
      failOn: RangeError,
      onBlank: 'fail',
      onStoreError: 'run',
      if: true,
    };
    await boot({ providers: [guarded('First', 'payments'), guarded('Second', 'payments', own)] });
  });

  it('two classes of one name would share one without saying so', async () => {
    const [one, other] = [guarded('Shop'), guarded('Shop')];
    const message = await bootMessage(
      boot({ providers: [one, { provide: 'other', useClass: other }] }),
    );
    expect(message).toContain('@CircuitBreaker: expected one class of that name, got two');
  });

  it('a breaker and a lock under one key would', async () => {
    @Injectable()
    class Mixed {
      @LockWith('one')
      @CircuitBreaker({ namespace: 'cmdx:lock' })
      async call(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Mixed] }))).toContain(
      'expected keys of its own, got those of @CircuitBreaker on Mixed.call',
    );
  });
});

describe('what may the module say for all?', () => {
  const defaults = (circuitBreaker: object): CmdxModuleOptions => ({
    defaults: { circuitBreaker },
  });

  it('options where a method says nothing', async () => {
    const [Shop, Own] = [guarded('Shop'), guarded('Own', { openFor: 9 })];
    const options = { minimumCalls: 1, openFor: 7, namespace: 'shop:cb' };
    const { get } = await boot({ providers: [Shop, Own] }, defaults(options));
    for (const [Service, retryAfter] of [
      [Shop, 7],
      [Own, 9],
    ] as const) {
      await endOf(get(Service).call());
      await expect(get(Service).call()).rejects.toMatchObject({
        metadata: { circuitKey: `shop:cb:${Service.name}.call`, retryAfter },
      });
    }
  });

  it.each([
    ['a skip', { onOpen: 'skip' }, 'onOpen'],
    ['a name', { name: 'all' }, 'name'],
    ['what is wrong on a method as well', { failureRate: 2 }, 'failureRate'],
    ['what there is not', { threshold: 1 }, 'threshold'],
  ])('not %s', async (_what, options, shown) => {
    const message = await bootMessage(boot({}, defaults(options)));
    expect(message).toContain('CmdxModule.forRoot() option "defaults.circuitBreaker"');
    expect(message).toContain(shown);
  });

  it('never a breaker where no method asks for one', async () => {
    @Injectable()
    class Plain {
      @LockWith('one')
      async call(): Promise<void> {
        throw new Error('sick');
      }
    }
    const { get } = await boot({ providers: [Plain] }, defaults({ minimumCalls: 1 }));
    for (let call = 0; call < 3; call++) expect(await endOf(get(Plain).call())).toBe('sick');
  });
});

describe('is the author told of what looks wrong?', () => {
  function warnings(): () => string[] {
    const spy = jest.spyOn(Logger.prototype, 'warn').mockReturnValue(undefined);
    return () => spy.mock.calls.map(([message]) => String(message));
  }

  it('of times that look like milliseconds', async () => {
    const warned = warnings();
    const times = { window: 60_000, openFor: 30_000, maxOpenFor: 600_000, probeTimeout: 5_000 };
    await boot({ providers: [guarded('Shop', times)] });
    expect(warned().toSorted()).toEqual(
      Object.entries(times)
        .map(
          ([option, seconds]) =>
            `Shop.call: @CircuitBreaker option "${option}": ${seconds} seconds; did you mean '${seconds / 1_000}s'?`,
        )
        .toSorted(),
    );
  });

  it('of a retry that sleeps for longer than a probe may take, and not of a shorter one', async () => {
    const warned = warnings();
    @Injectable()
    class Long {
      @CircuitBreaker({ probeTimeout: 20 })
      @RetryOn(Error, { limit: 3, delay: 10 })
      async call(): Promise<void> {}
    }
    @Injectable()
    class Short {
      @CircuitBreaker({ probeTimeout: 40 })
      @RetryOn(Error, { limit: 3, delay: 10 })
      async call(): Promise<void> {}
    }
    await boot({ providers: [Long, Short] });
    expect(warned()).toHaveLength(1);
    expect(warned()[0]).toContain("the breaker's probeTimeout of 20 s");
  });
});

describe('who may overrule it?', () => {
  it('whoever injects CircuitBreakers', async () => {
    @Injectable()
    class Operator {
      constructor(readonly breakers: CircuitBreakers) {}
    }
    const { get } = await boot({ providers: [Operator, guarded('Shop', 'shop')] });
    await get(Operator).breakers.forceOpen('cmdx:cb:shop');
    expect(await get(Operator).breakers.inspect('cmdx:cb:shop')).toMatchObject({
      state: 'forced_open',
    });
  });
});
