import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  type Admission,
  arg,
  type CmdxModuleOptions,
  LimiterError,
  type Quota,
  RateLimit,
  RateLimitedError,
  RegisterLimiter,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../support/application.js';
import { definitionMessage } from '../support/definition.js';

closeApplicationsAfterEach();

const admit = (): Admission => ({ admitted: true });
const named = (limiter: string) => (): Admission => ({ admitted: true, limiter });

describe('how is a limiter of one’s own asked?', () => {
  it('as a function: this is the instance, the quota is frozen and complete', async () => {
    const asked: { quota: Quota; self: object; args: readonly unknown[] }[] = [];

    @Injectable()
    class Invoices {
      @RateLimit(arg(0), {
        max: 20,
        per: '1h',
        cost: 2,
        namespace: 'app:rl',
        limiter: function perTenant(this: object, quota: Quota) {
          asked.push({ quota, self: this, args: quota.invocation.args });
          return admit();
        },
      })
      async send(_account: string): Promise<string> {
        return 'sent';
      }
    }

    const { get, store } = await boot({ providers: [Invoices] });
    await expect(get(Invoices).send('acct_1')).resolves.toBe('sent');
    const { quota, self, args } = asked[0] as (typeof asked)[number];
    expect(self).toBe(get(Invoices));
    expect(quota).toMatchObject({
      task: 'Invoices.send',
      storeKey: 'app:rl:Invoices.send:acct_1',
      max: 20,
      per: 3_600,
      cost: 2,
      limiter: 'perTenant',
      options: { max: 20, per: '1h', cost: 2, namespace: 'app:rl' },
    });
    expect(quota.invocation.task).toBe('Invoices.send');
    expect(args).toEqual(['acct_1']);
    expect(quota.store).toBe(store);
    expect(Object.isFrozen(quota)).toBe(true);
    expect(Object.isFrozen(quota.options)).toBe(true);
  });

  it('its answer is told and thrown', async () => {
    @Injectable()
    class Invoices {
      @RateLimit({
        max: 1,
        per: 60,
        limiter: async ({ store, storeKey, per, max }) => {
          const count = await store.incr(storeKey, { ttl: per });
          const retryAfter = await store.remainingTtl(storeKey);
          return { admitted: count <= max, count, level: 0.5, retryAfter, limiter: 'strict' };
        },
      })
      async send(): Promise<void> {}
    }

    const { get, telemetry } = await boot({ providers: [Invoices] });
    await get(Invoices).send();
    const refusal = await get(Invoices)
      .send()
      .catch((error: unknown) => error);
    const facts = { rateLimitKey: 'cmdx:rl:Invoices.send', limiter: 'strict', max: 1, per: 60 };
    expect(refusal).toBeInstanceOf(RateLimitedError);
    expect((refusal as RateLimitedError).metadata).toEqual({
      ...facts,
      code: 'rate_limited',
      onLimit: 'fail',
      count: 2,
      level: 0.5,
      retryAfter: 60,
    });
    expect(telemetry.of('rate_limit_admitted').map((event) => event.payload)).toEqual([
      { ...facts, count: 1, level: 0.5, retryAfter: 60 },
    ]);
    expect(telemetry.of('rate_limit_exceeded').map((event) => event.payload)).toEqual([
      (refusal as RateLimitedError).metadata,
    ]);
  });
});

describe('which limiter does a name mean?', () => {
  const options: CmdxModuleOptions = {
    limiters: { shared: named('of the module'), other: named('other of the module') },
  };

  @RegisterLimiter('shared', named('of the base'))
  abstract class Base {
    @RateLimit({ max: 1, per: 60, limiter: 'shared' })
    async send(): Promise<void> {}

    @RateLimit({ max: 1, per: 60, limiter: 'other' })
    async post(): Promise<void> {}
  }

  @Injectable()
  class Plain extends Base {}

  @Injectable()
  @RegisterLimiter('shared', named('of the leaf'))
  class Leaf extends Base {}

  it('the class’s own first, then its base’s, then the module’s', async () => {
    const { get, telemetry } = await boot({ providers: [Plain, Leaf] }, options);
    await get(Plain).send();
    await get(Leaf).send();
    await get(Leaf).post();
    expect(telemetry.of('rate_limit_admitted').map((event) => event.payload.limiter)).toEqual([
      'of the base',
      'of the leaf',
      'other of the module',
    ]);
  });

  it('a built-in name cannot be taken, on a class or in the module', async () => {
    for (const name of ['fixed_window', 'leaky_bucket', '']) {
      expect(definitionMessage(() => RegisterLimiter(name, admit)(Plain))).toBe(
        `Plain: @RegisterLimiter: expected a name other than fixed_window, leaky_bucket, got ${JSON.stringify(name)}`,
      );
      await expect(boot({}, { limiters: { [name]: admit } })).rejects.toThrow(
        `CmdxModule.forRoot() option "limiters": expected a name other than fixed_window, leaky_bucket, got ${JSON.stringify(name)}`,
      );
    }
  });

  it('what cannot be called is no limiter', () => {
    const wrong = { admitted: true } as unknown as () => Admission;
    expect(definitionMessage(() => RegisterLimiter('mine', wrong)(Plain))).toBe(
      'Plain: @RegisterLimiter("mine"): expected a function, got an object (Object)',
    );
  });

  it('an unknown one stops the boot, and the registered ones are listed', async () => {
    @Injectable()
    @RegisterLimiter('mine', admit)
    class Invoices {
      @RateLimit({ max: 1, per: 60, limiter: 'main' })
      async send(): Promise<void> {}
    }

    await expect(boot({ providers: [Invoices] }, options)).rejects.toThrow(
      'Invoices.send: @RateLimit option "limiter": expected a registered limiter (fixed_window, leaky_bucket, mine, shared, other), got "main"',
    );
  });
});

describe('what if a limiter answers no admission?', () => {
  it.each([
    [undefined],
    [null],
    [true],
    [{}],
    [{ admitted: 'yes' }],
    [{ admitted: true, count: '3' }],
    [{ admitted: false, retryAfter: '3s' }],
    [{ admitted: true, limiter: 5 }],
  ])('%p is a LimiterError that names limiter and task; the body does not run', async (answer) => {
    let ran = 0;

    @Injectable()
    class Invoices {
      @RateLimit({ max: 1, per: 60, limiter: 'strict' })
      async send(): Promise<void> {
        ran += 1;
      }
    }

    const limiters = { strict: () => answer as unknown as Admission };
    const { get } = await boot({ providers: [Invoices] }, { limiters });
    const error = await get(Invoices)
      .send()
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LimiterError);
    expect(error).toMatchObject({ limiter: 'strict', task: 'Invoices.send' });
    expect((error as Error).message).toMatch(
      /^Limiter "strict" of Invoices\.send: expected an Admission .*, got /,
    );
    expect(ran).toBe(0);
  });

  it('what it throws is what the caller gets', async () => {
    const broken = new Error('no tenant');

    @Injectable()
    class Invoices {
      @RateLimit({
        max: 1,
        per: 60,
        limiter: () => {
          throw broken;
        },
      })
      async send(): Promise<void> {}
    }

    const { get } = await boot({ providers: [Invoices] });
    await expect(get(Invoices).send()).rejects.toBe(broken);
  });

  it.each([null, Infinity, Number.NaN])('a hint that is %p counts as none', async (hint) => {
    @Injectable()
    class Invoices {
      @RateLimit({
        max: 1,
        per: 60,
        limiter: () => ({ admitted: false, count: hint, retryAfter: hint }) as unknown as Admission,
      })
      async send(): Promise<void> {}
    }

    const { get } = await boot({ providers: [Invoices] });
    const error = await get(Invoices)
      .send()
      .catch((thrown: unknown) => thrown);
    expect((error as RateLimitedError).metadata).toEqual({
      code: 'rate_limited',
      rateLimitKey: 'cmdx:rl:Invoices.send',
      limiter: 'limiter',
      onLimit: 'fail',
      max: 1,
      per: 60,
    });
  });
});
