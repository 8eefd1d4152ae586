import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import type { StandardSchemaV1 } from '@standard-schema/spec';
import { type } from 'arktype';
import {
  arg,
  CircuitBreaker,
  CircuitBreakers,
  DuplicateError,
  IdempotencyRecords,
  IdempotentBy,
  LockWith,
  OutputInvalidError,
  OutputSchema,
  RetryOn,
  skip,
  SystemClock,
} from 'nestjs-cmdx';
import * as v from 'valibot';
import * as z from 'zod';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';

closeApplicationsAfterEach();

interface Receipt {
  readonly id: string;
}

/** The same receipt in three languages: an id in capitals, and nothing else. */
const RECEIPTS: readonly (readonly [string, StandardSchemaV1<unknown, Receipt>])[] = [
  ['zod', z.object({ id: z.string().transform((id) => id.toUpperCase()) })],
  [
    'valibot',
    v.object({
      id: v.pipe(
        v.string(),
        v.transform((id) => id.toUpperCase()),
      ),
    }),
  ],
  [
    'arktype',
    type({ '+': 'delete', id: type('string').pipe((id) => id.toUpperCase()) }) as StandardSchemaV1<
      unknown,
      Receipt
    >,
  ],
];

describe.each(RECEIPTS)('what does the caller get (%s)?', (_library, receipt) => {
  @Injectable()
  class Payments {
    runs = 0;

    @IdempotentBy(arg(0))
    @OutputSchema(receipt)
    async pay(_key: string, answer: unknown): Promise<unknown> {
      this.runs += 1;
      return answer;
    }
  }

  it('what the schema made of it; a duplicate and the Result as well', async () => {
    const { get, cmdx } = await boot({ providers: [Payments] });
    const parsed = { id: 'R-1' };
    const first = await cmdx.execute(() => get(Payments).pay('k', { id: 'r-1', secret: 's' }));
    expect(first).toMatchObject({ status: 'success', value: parsed });
    expect(first.value).toEqual(parsed);
    await expect(get(Payments).pay('k', { id: 'r-2' })).resolves.toEqual(parsed);
    expect(get(Payments).runs).toBe(1);
  });

  it('an error, when it does not fit; the work is not done again', async () => {
    const { get, cmdx, module } = await boot({ providers: [Payments] });
    const first = await cmdx.execute(() => get(Payments).pay('k', { id: 5 }));
    expect(first).toMatchObject({
      status: 'failed',
      metadata: { code: 'output_invalid', issues: [{ path: 'id' }] },
    });
    expect(first.cause).toBeInstanceOf(OutputInvalidError);
    const records = module.get(IdempotencyRecords);
    expect(await records.inspect('cmdx:idem:Payments.pay:k')).toMatchObject({ state: 'tombstone' });
    const again = await cmdx.execute(() => get(Payments).pay('k', { id: 'r-1' }));
    expect(again.cause).toBeInstanceOf(DuplicateError);
    expect(again.metadata).toMatchObject({ code: 'duplicate', replayable: false });
    expect(get(Payments).runs).toBe(1);
  });
});

describe('what does an output that does not fit mean for the rings?', () => {
  const broken = new Error('schema is broken');
  const throwing = z.unknown().transform((): string => {
    throw broken;
  });
  const rejecting: StandardSchemaV1 = {
    '~standard': { version: 1, vendor: 'test', validate: () => Promise.reject(broken) },
  };

  @Injectable()
  class Payments {
    runs = 0;

    @CircuitBreaker('bank', { minimumCalls: 2, failureRate: 0.1 })
    @LockWith('one')
    @IdempotentBy(arg(0))
    @RetryOn(Error, { delay: 0 })
    @OutputSchema(z.string())
    async pay(_key: string, answer: unknown): Promise<string> {
      this.runs += 1;
      if (answer instanceof Error) throw answer;
      return answer as string;
    }

    @CircuitBreaker('bank', { minimumCalls: 2, failureRate: 0.1 })
    @LockWith('one')
    @IdempotentBy(arg(0))
    @RetryOn(Error, { delay: 0 })
    @OutputSchema(throwing)
    async throws(_key: string): Promise<unknown> {
      this.runs += 1;
      return 'paid';
    }

    @CircuitBreaker('bank', { minimumCalls: 2, failureRate: 0.1 })
    @LockWith('one')
    @IdempotentBy(arg(0))
    @RetryOn(Error, { delay: 0 })
    @OutputSchema(rejecting)
    async rejects(_key: string): Promise<unknown> {
      this.runs += 1;
      return 'paid';
    }

    @OutputSchema(z.string().optional())
    async skipping(): Promise<string | undefined> {
      return skip('nothing to do');
    }
  }

  const start = () => boot({ providers: [Payments] }, { clock: new SystemClock() });

  it('no sample, no repetition, a tombstone, and the lease is free', async () => {
    const { get, store, telemetry, module } = await start();
    for (const key of ['a', 'b', 'c', 'd']) {
      await expect(get(Payments).pay(key, 5)).rejects.toBeInstanceOf(OutputInvalidError);
    }
    expect(get(Payments).runs).toBe(4);
    expect(await module.get(CircuitBreakers).inspect('cmdx:cb:bank')).toBeUndefined();
    expect(await store.inspect('cmdx:lock:Payments.pay:one')).toBeUndefined();
    expect(telemetry.names).not.toContain('task_retried');
    await expect(get(Payments).pay('a', 'paid')).rejects.toBeInstanceOf(DuplicateError);
    await expect(get(Payments).pay('e', 'paid')).resolves.toBe('paid');
    expect(await module.get(CircuitBreakers).inspect('cmdx:cb:bank')).toMatchObject({
      state: 'closed',
      calls: 1,
      failures: 0,
    });
  });

  it('an error of the body is none of the schema’s: repeated, counted, and the key is free', async () => {
    const { get, module } = await start();
    await expect(get(Payments).pay('a', new Error('down'))).rejects.toThrow('down');
    expect(get(Payments).runs).toBe(4);
    expect(await module.get(CircuitBreakers).inspect('cmdx:cb:bank')).toMatchObject({
      calls: 1,
      failures: 1,
    });
    await expect(get(Payments).pay('a', 'paid')).resolves.toBe('paid');
  });

  it.each(['throws', 'rejects'] as const)(
    'a schema that %s: the caller gets that, and the work counts as done',
    async (method) => {
      const { get, store, module } = await start();
      await expect(get(Payments)[method]('a')).rejects.toBe(broken);
      await expect(get(Payments)[method]('a')).rejects.toBeInstanceOf(DuplicateError);
      expect(get(Payments).runs).toBe(1);
      expect(await store.inspect(`cmdx:lock:Payments.${method}:one`)).toBeUndefined();
      expect(await module.get(CircuitBreakers).inspect('cmdx:cb:bank')).toBeUndefined();
    },
  );

  it('what is skipped is not looked at', async () => {
    const { get } = await start();
    await expect(get(Payments).skipping()).resolves.toBeUndefined();
  });
});

describe('which value does a schema check?', () => {
  @Injectable()
  class Mail {
    runs = 0;

    @OutputSchema(z.array(z.string().trim()))
    async list(values: string[]): Promise<string[]> {
      return values;
    }

    @OutputSchema(z.undefined())
    async nothing(): Promise<undefined> {}

    @OutputSchema(z.string().refine(async (text) => text !== 'no', 'said no'))
    async later(text: string): Promise<string> {
      return text;
    }

    @OutputSchema(z.string())
    @RetryOn(Error, { delay: 0 })
    async flaky(): Promise<string> {
      this.runs += 1;
      if (this.runs < 3) throw new Error('flaky');
      return `run ${this.runs}`;
    }
  }

  it('a list, nothing, one that takes its time, the one of the last attempt', async () => {
    const { get } = await boot({ providers: [Mail] }, { clock: new SystemClock() });
    const mail = get(Mail);
    await expect(mail.list([' a', 'b '])).resolves.toEqual(['a', 'b']);
    await expect(mail.nothing()).resolves.toBeUndefined();
    await expect(mail.later('yes')).resolves.toBe('yes');
    await expect(mail.later('no')).rejects.toMatchObject({
      message: 'Mail.later: invalid output: said no',
      metadata: { issues: [{ path: '', message: 'said no' }] },
    });
    await expect(mail.flaky()).resolves.toBe('run 3');
  });
});

describe('what does a subclass make of its base’s schema?', () => {
  class Base {
    @OutputSchema(z.string().transform((text) => `${text}!`))
    async say(): Promise<string> {
      return 'a';
    }
  }
  @Injectable()
  class Plain extends Base {}
  @Injectable()
  class Undecorated extends Base {
    override async say(): Promise<string> {
      return `b${await super.say()}`;
    }
  }
  @Injectable()
  class Inherits extends Base {
    @OutputSchema()
    override async say(): Promise<string> {
      return 'b';
    }
  }
  @Injectable()
  class Replaces extends Base {
    @OutputSchema(z.string().transform((text) => `${text}?`))
    override async say(): Promise<string> {
      return 'b';
    }
  }
  @Injectable()
  class Off extends Base {
    @OutputSchema(false)
    override async say(): Promise<string> {
      return 'b';
    }
  }

  it.each([
    [Plain, 'a!'],
    // Once, although super.say() is guarded as well.
    [Undecorated, 'ba!'],
    [Inherits, 'b!'],
    [Replaces, 'b?'],
    [Off, 'b'],
  ])('%p: %s', async (Sub, said) => {
    const { get } = await boot({ providers: [Sub] });
    await expect(get(Sub).say()).resolves.toBe(said);
  });
});
