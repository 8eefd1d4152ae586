import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { Controller, Get, Injectable, Logger } from '@nestjs/common';
import { Observable, of } from 'rxjs';
import {
  type CmdxModuleOptions,
  InputSchema,
  LockWith,
  OutputSchema,
  RetryOn,
  type RetryOptions,
} from 'nestjs-cmdx';
import * as z from 'zod';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootMessage, definitionMessage } from '../../support/definition.js';

closeApplicationsAfterEach();
afterEach(() => void jest.restoreAllMocks());

class Flaky extends Error {}

/** A decorator as plain JavaScript may apply it, to what TypeScript would refuse. */
type Loose = (...applied: unknown[]) => unknown;
const loose = (decorator: unknown): Loose => decorator as Loose;

class Accounts {
  async reconcile(): Promise<void> {}
}

function onMethod(decorator: Loose, written: readonly unknown[]): string {
  const descriptor = Object.getOwnPropertyDescriptor(Accounts.prototype, 'reconcile');
  return definitionMessage(() =>
    loose(decorator(...written))(Accounts.prototype, 'reconcile', descriptor),
  );
}

describe('how may @RetryOn be written?', () => {
  const retryOn = loose(RetryOn);
  const forms = '(errors, options), (errors), (options), (false) or ()';

  it.each([
    ['an empty list', [[]], '(an array of 0)'],
    ['a text', ['Flaky'], '("Flaky")'],
    ['an error', [new Error('x')], '(an object (Error))'],
    ['a list of other things', [[Flaky, 'Late']], '(an array of 2)'],
    ['true', [true], '(true)'],
    ['null', [null], '(null)'],
    ['errors that are undefined', [undefined], '(undefined)'],
    ['errors and a number', [Flaky, 3], '(class Flaky, 3)'],
    ['errors and null', [Flaky, null], '(class Flaky, null)'],
    ['false and options', [false, { limit: 1 }], '(false, an object (Object))'],
  ])('not with %s', (_what, written, shown) => {
    const message = onMethod(retryOn, written);
    expect(message).toContain(`Accounts.reconcile: @RetryOn: expected ${forms}, got (`);
    expect(message.replace('function Flaky', 'class Flaky')).toContain(`got ${shown}`);
  });

  it.each([
    ['limit', -1, 'a whole number from 0', '-1'],
    ['limit', 1.5, 'a whole number from 0', '1.5'],
    ['limit', Number.NaN, 'a whole number from 0', 'NaN'],
    ['limit', Infinity, 'a whole number from 0', 'Infinity'],
    ['limit', '3', 'a whole number from 0', '"3"'],
    ['delay', -1, 'zero or more seconds', '-1'],
    ['delay', Number.NaN, 'zero or more seconds', 'NaN'],
    ['delay', 'soon', 'zero or more seconds', '"soon"'],
    ['maxDelay', 0, 'more than zero seconds', '0'],
    ['maxDelay', Infinity, 'more than zero seconds', 'Infinity'],
    ['jitter', '', 'the name of a jitter or a function', '""'],
    ['jitter', 5, 'the name of a jitter or a function', '5'],
    ['jitter', null, 'the name of a jitter or a function', 'null'],
    ['if', 1, 'a boolean, the name of a method, a function or an object with call()', '1'],
    ['unless', '', 'a boolean, the name of a method, a function or an object with call()', '""'],
  ])('not with the option %s: %p', (option, value, expected, got) => {
    const options = { [option]: value };
    const start = `@RetryOn option "${option}": expected ${expected}`;
    for (const [message, site] of [
      [onMethod(retryOn, [Flaky, options]), 'Accounts.reconcile: '],
      [onMethod(retryOn, [options]), 'Accounts.reconcile: '],
      [definitionMessage(() => loose(retryOn(Flaky, options))(Accounts)), 'Accounts: '],
    ]) {
      expect(message).toContain(`${site}${start}`);
      expect(message?.endsWith(`got ${got}`)).toBe(true);
    }
  });

  it('not with an option that there is none of; those that there are get listed', () => {
    expect(onMethod(retryOn, [Flaky, { retries: 3 }])).toBe(
      'Accounts.reconcile: @RetryOn: unknown option "retries"; expected one of limit, delay, jitter, maxDelay, if, unless',
    );
  });

  it('not as a default, either', async () => {
    const defaults = (retry: object) => ({ defaults: { retry } }) as CmdxModuleOptions;
    expect(await bootMessage(boot({}, defaults({ limit: -1 })))).toBe(
      'CmdxModule.forRoot() option "defaults.retry" option "limit": expected a whole number from 0, got -1',
    );
    expect(await bootMessage(boot({}, defaults({ retries: 1 })))).toContain(
      'CmdxModule.forRoot() option "defaults.retry": unknown option "retries"',
    );
    for (const gate of ['if', 'unless']) {
      expect(await bootMessage(boot({}, defaults({ [gate]: true })))).toBe(
        `CmdxModule.forRoot() option "defaults.retry": "${gate}" must be written on the method, because it is asked about what that throws`,
      );
    }
  });

  it('not without errors, own or inherited', async () => {
    @Injectable()
    class Nothing {
      @RetryOn({ limit: 1 })
      async send(): Promise<void> {}
    }
    @Injectable()
    class NothingInherited {
      @RetryOn()
      async send(): Promise<void> {}
    }
    for (const Service of [Nothing, NothingInherited]) {
      expect(await bootMessage(boot({ providers: [Service] }))).toBe(
        `${Service.name}.send: @RetryOn: expected the errors that let the body be repeated, own or inherited, got none`,
      );
    }
  });

  it('not on a class of which it reaches no method', async () => {
    @Injectable()
    @RetryOn(Flaky)
    class Idle {
      async send(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Idle] }))).toContain(
      'Idle: @RetryOn on the class reaches none of its methods',
    );
  });
});

describe('how may schemas be written?', () => {
  const text = z.string();
  const formsOf = (decorator: unknown): string =>
    decorator === InputSchema ? '(schema), ([first, undefined, third])' : '(schema)';

  it.each([
    ['@InputSchema', InputSchema, [{}], '(an object (Object))'],
    ['@InputSchema', InputSchema, [[]], '(an array of 0)'],
    ['@InputSchema', InputSchema, [[undefined]], '(an array of 1)'],
    ['@InputSchema', InputSchema, [[text, {}]], '(an array of 2)'],
    ['@InputSchema', InputSchema, [undefined], '(undefined)'],
    ['@InputSchema', InputSchema, [() => true], 'function'],
    ['@OutputSchema', OutputSchema, [[text]], '(an array of 1)'],
    ['@OutputSchema', OutputSchema, ['text'], '("text")'],
    ['@OutputSchema', OutputSchema, [{ parse: () => 1 }], '(an object (Object))'],
  ])('%s: not with what is no schema (%#)', (name, decorator, written, shown) => {
    const message = onMethod(loose(decorator), written);
    expect(message).toContain(
      `Accounts.reconcile: ${name}: expected ${formsOf(decorator)}, (false) or (), got (`,
    );
    expect(message).toContain(shown);
  });

  it.each([
    ['@InputSchema', InputSchema],
    ['@OutputSchema', OutputSchema],
  ])('%s: not with options, not on a class', (name, decorator) => {
    expect(onMethod(loose(decorator), [text, { strict: true }])).toBe(
      `Accounts.reconcile: ${name}: expected ${formsOf(decorator)}, (false) or (), got (an object (ZodString), an object (Object))`,
    );
    expect(definitionMessage(() => loose(loose(decorator)(text))(Accounts))).toBe(
      `Accounts: ${name}: expected a method, got a class`,
    );
  });

  it('not as (), with nothing to inherit', async () => {
    @Injectable()
    class NoInput {
      @InputSchema()
      async send(): Promise<void> {}
    }
    @Injectable()
    class NoOutput {
      @OutputSchema()
      async send(): Promise<void> {}
    }
    const expected = 'expected a schema, own or inherited, got none';
    expect(await bootMessage(boot({ providers: [NoInput] }))).toBe(
      `NoInput.send: @InputSchema: ${expected}`,
    );
    expect(await bootMessage(boot({ providers: [NoOutput] }))).toBe(
      `NoOutput.send: @OutputSchema: ${expected}`,
    );
  });
});

describe('what does not go with a stream?', () => {
  const expected = 'expected a method that returns a Promise, got one that returns an Observable';

  it.each([
    ['@RetryOn', RetryOn(Flaky)],
    ['@OutputSchema', OutputSchema(z.number())],
  ])('%s on a method that returns an Observable', async (name, decorator) => {
    @Injectable()
    class Feed {
      @(decorator as MethodDecorator)
      all(): Observable<number> {
        return of(1);
      }
    }
    expect(await bootMessage(boot({ providers: [Feed] }))).toBe(`Feed.all: ${name}: ${expected}`);
  });

  it('@RetryOn beside the option stream: true', async () => {
    @Injectable()
    class Feed {
      @LockWith('one', { stream: true })
      @(RetryOn(Flaky) as MethodDecorator)
      all() {
        return of(1);
      }
    }
    expect(await bootMessage(boot({ providers: [Feed] }))).toBe(`Feed.all: @RetryOn: ${expected}`);
  });

  it('@RetryOn on a class with a handler that returns one; false there is the cure', async () => {
    @Controller('feed')
    @RetryOn(Flaky)
    class Feed {
      @Get()
      all(): Observable<number> {
        return of(1);
      }
    }
    @Controller('cured')
    @RetryOn(Flaky)
    class Cured {
      @Get()
      @RetryOn(false)
      all(): Observable<number> {
        return of(1);
      }

      @Get('one')
      async one(): Promise<number> {
        return 1;
      }
    }
    expect(await bootMessage(boot({ controllers: [Feed] }))).toBe(
      `Feed.all: @RetryOn: ${expected}`,
    );
    await boot({ controllers: [Cured] });
  });

  it('@RetryOn and @OutputSchema where only the returned value shows that it is one', async () => {
    @Injectable()
    class Feed {
      @(OutputSchema(z.number()) as MethodDecorator)
      all() {
        return of(1);
      }
    }
    const { get } = await boot({ providers: [Feed] });
    await expect(get(Feed).all()).rejects.toThrow(
      'Feed.all: expected a method that returns a Promise, got an Observable',
    );
  });
});

describe('is the author warned of sleeps that outlast the lock?', () => {
  const warned = () => {
    const spy = jest.spyOn(Logger.prototype, 'warn').mockReturnValue(undefined);
    return () => spy.mock.calls.map(([message]) => String(message));
  };

  function makeJobs(ttl: number, options: RetryOptions) {
    @Injectable()
    class Jobs {
      @LockWith('one', { ttl })
      @RetryOn(Flaky, options)
      async run(): Promise<void> {}
    }
    return Jobs;
  }

  /** Seconds, and no multiple of a thousand, which would look like milliseconds. */
  const YEAR = 365 * 86_400 + 1;

  it.each<[string, number, RetryOptions]>([
    ['a fixed delay', 29, { delay: 10 }],
    ['exponential', 69, { delay: 10, jitter: 'exponential' }],
    ['linear', 59, { delay: 10, jitter: 'linear' }],
    ['fibonacci', 39, { delay: 10, jitter: 'fibonacci' }],
    ['bounded_random', 59, { delay: 10, jitter: 'bounded_random' }],
    ['half_random', 29, { delay: 10, jitter: 'half_random' }],
    ['full_random', 29, { delay: 10, jitter: 'full_random' }],
    ['decorrelated_jitter', 389, { delay: 10, jitter: 'decorrelated_jitter' }],
    ['a jitter of its own, up to maxDelay', 59, { jitter: () => 1, maxDelay: 20 }],
    ['capped ones', 44, { delay: 10, jitter: 'exponential', maxDelay: 15, limit: 4 }],
    ['as good as for ever', 300, { limit: Number.MAX_SAFE_INTEGER }],
    ['for ever, short ones, and nearly as long a lease', YEAR, { limit: 1e11, delay: '1ms' }],
    ['the same, growing', 300, { limit: Number.MAX_SAFE_INTEGER, jitter: 'linear', delay: '1ms' }],
  ])('yes: %s (%i s)', async (_what, ttl, options) => {
    const warnings = warned();
    await boot({ providers: [makeJobs(ttl, options)] });
    expect(warnings()).toEqual([
      expect.stringMatching(
        new RegExp(`^Jobs\\.run: @RetryOn: .* longer than the lock's ttl of ${ttl} s`),
      ),
    ]);
  });

  it('yes: a jitter of its own that nothing caps', async () => {
    const warnings = warned();
    await boot({ providers: [makeJobs(300, { jitter: () => 1 })] });
    expect(warnings()).toEqual([expect.stringContaining('Jobs.run: @RetryOn: ')]);
    expect(warnings()[0]).toContain('maxDelay');
  });

  it.each<[string, number, RetryOptions]>([
    ['a fixed delay', 30, { delay: 10 }],
    ['exponential', 70, { delay: 10, jitter: 'exponential' }],
    ['decorrelated_jitter', 390, { delay: 10, jitter: 'decorrelated_jitter' }],
    ['capped ones', 55, { delay: 10, jitter: 'exponential', maxDelay: 15, limit: 4 }],
    ['none', 1, { limit: 0, delay: 10 }],
    ['at once, as good as for ever', 1, { limit: Number.MAX_SAFE_INTEGER, delay: 0 }],
    ['the defaults', 300, {}],
    ['many short ones', YEAR, { limit: 1e10, delay: '1ms' }],
    ['many that soon grow no more', YEAR, { limit: 1e9, jitter: 'fibonacci', maxDelay: '5ms' }],
  ])('no: %s (%i s)', async (_what, ttl, options) => {
    const warnings = warned();
    await boot({ providers: [makeJobs(ttl, options)] });
    expect(warnings()).toEqual([]);
  });

  it('no: without a lock', async () => {
    @Injectable()
    class Jobs {
      @RetryOn(Flaky, { delay: '1h', limit: 100 })
      async run(): Promise<void> {}
    }
    const warnings = warned();
    await boot({ providers: [Jobs] });
    expect(warnings()).toEqual([]);
  });

  it('seconds that look like milliseconds, too', async () => {
    @Injectable()
    class Jobs {
      @RetryOn(Flaky, { delay: 1_000, maxDelay: 5_000 })
      async run(): Promise<void> {}
    }
    const warnings = warned();
    await boot({ providers: [Jobs] }, { defaults: { retry: { delay: 2_000 } } });
    expect(warnings().toSorted()).toEqual([
      `CmdxModule.forRoot() option "defaults.retry" option "delay": 2000 seconds; did you mean '2s'?`,
      `Jobs.run: @RetryOn option "delay": 1000 seconds; did you mean '1s'?`,
      `Jobs.run: @RetryOn option "maxDelay": 5000 seconds; did you mean '5s'?`,
    ]);
  });
});
