import { describe, expect, it } from '@jest/globals';
import { BadGatewayException, Injectable, NotFoundException } from '@nestjs/common';
import {
  arg,
  CircuitBreaker,
  currentInvocation,
  fail,
  IdempotentBy,
  InputSchema,
  isRefusalError,
  LockWith,
  type MemoryStore,
  OutputSchema,
  perTask,
  RateLimit,
  RetryOn,
  skip,
  SystemClock,
} from 'nestjs-cmdx';
import * as z from 'zod';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { OverheardStore } from '../../support/overheard-store.js';

closeApplicationsAfterEach();

class Flaky extends Error {}
class Worse extends Flaky {}
class Other extends Error {}

/** Where the time is not the point, nobody sleeps. */
const AT_ONCE = { delay: 0 };
const realTime = { clock: new SystemClock() };

/** What a body does: one thing per attempt, the last one for ever. */
class Script {
  runs = 0;
  readonly thrown: unknown[] = [];

  constructor(private readonly steps: readonly (() => unknown)[]) {}

  async play(): Promise<unknown> {
    const step = this.steps[Math.min(this.runs, this.steps.length - 1)];
    this.runs += 1;
    try {
      return await step?.();
    } catch (error) {
      this.thrown.push(error);
      throw error;
    }
  }
}

const throwing = (make: () => unknown) => (): never => {
  throw make();
};
const always = (make: () => unknown): Script => new Script([throwing(make)]);

@Injectable()
class Api {
  @RetryOn(Flaky, AT_ONCE)
  async byClass(script: Script): Promise<unknown> {
    return script.play();
  }

  @RetryOn((error) => (error as { code?: string }).code === 'EAGAIN', AT_ONCE)
  async byPredicate(script: Script): Promise<unknown> {
    return script.play();
  }

  @RetryOn([Flaky, (error) => error === 'again'], AT_ONCE)
  async byList(script: Script): Promise<unknown> {
    return script.play();
  }

  @RetryOn(Error, AT_ONCE)
  async anything(script: Script): Promise<unknown> {
    return script.play();
  }

  @RetryOn(Flaky, { ...AT_ONCE, limit: 0 })
  async never(script: Script): Promise<unknown> {
    return script.play();
  }

  @RetryOn(Flaky, { ...AT_ONCE, limit: 1 })
  async once(script: Script): Promise<unknown> {
    return script.play();
  }
}

describe('how often does the body run?', () => {
  const flaky = (): Flaky => new Flaky();

  it.each<[keyof Api, () => unknown, number]>([
    ['byClass', flaky, 4],
    ['byClass', () => new Worse(), 4],
    ['byClass', () => new Other(), 1],
    ['byClass', () => 'again', 1],
    ['byClass', () => undefined, 1],
    ['byPredicate', () => ({ code: 'EAGAIN' }), 4],
    ['byPredicate', () => ({ code: 'EBUSY' }), 1],
    // The predicate itself fails on it.
    ['byPredicate', () => undefined, 1],
    ['byList', flaky, 4],
    ['byList', () => 'again', 4],
    ['byList', () => new Other(), 1],
    ['never', flaky, 1],
    ['once', flaky, 2],
    ['anything', () => new BadGatewayException(), 4],
    // Of the caller's doing, but the author has listed it.
    ['anything', () => new NotFoundException(), 4],
    ['anything', () => Object.assign(new Error(), { name: 'AbortError' }), 1],
  ])('%s, which fails with %p: %i times', async (method, make, runs) => {
    const { get, cmdx } = await boot({ providers: [Api] }, realTime);
    const script = always(make);
    const result = await cmdx.execute(() => get(Api)[method](script));
    expect(script.runs).toBe(runs);
    expect(result).toMatchObject({ status: 'failed', retries: runs - 1 });
    expect(result.cause).toBe(script.thrown.at(-1));
  });

  it('until it succeeds; the caller gets that value', async () => {
    const { get, cmdx } = await boot({ providers: [Api] }, realTime);
    const script = new Script([throwing(flaky), throwing(flaky), () => 'done']);
    const result = await cmdx.execute(() => get(Api).byClass(script));
    expect(result).toMatchObject({ status: 'success', value: 'done', retries: 2 });
    expect(script.runs).toBe(3);
  });

  it('once, when it succeeds', async () => {
    const { get, cmdx } = await boot({ providers: [Api] }, realTime);
    const result = await cmdx.execute(() => get(Api).byClass(new Script([() => 'done'])));
    expect(result).toMatchObject({ value: 'done', retries: 0 });
  });

  it('until another error comes that is not listed', async () => {
    const { get } = await boot({ providers: [Api] }, realTime);
    const other = new Other();
    const script = new Script([throwing(flaky), throwing(() => other), () => 'never']);
    await expect(get(Api).byClass(script)).rejects.toBe(other);
    expect(script.runs).toBe(2);
  });

  it('every call counts for itself', async () => {
    const { get } = await boot({ providers: [Api] }, realTime);
    const scripts = Array.from({ length: 20 }, () => always(flaky));
    await Promise.allSettled(scripts.map((script) => get(Api).byClass(script)));
    expect(scripts.map(({ runs }) => runs)).toEqual(Array(20).fill(4));
  });

  it('a body that throws before it returns a promise is repeated as well', async () => {
    @Injectable()
    class Sync {
      runs = 0;
      @RetryOn(Flaky, AT_ONCE)
      call(): Promise<string> {
        this.runs += 1;
        if (this.runs < 3) throw new Flaky();
        return Promise.resolve('done');
      }
    }
    const { get } = await boot({ providers: [Sync] }, realTime);
    await expect(get(Sync).call()).resolves.toBe('done');
    expect(get(Sync).runs).toBe(3);
  });
});

describe('which error does the caller get?', () => {
  it('the very one that the last attempt threw', async () => {
    const { get } = await boot({ providers: [Api] }, realTime);
    const script = always(() => new Flaky());
    const error: unknown = await get(Api)
      .byClass(script)
      .catch((thrown: unknown) => thrown);
    expect(script.thrown).toHaveLength(4);
    expect(new Set(script.thrown).size).toBe(4);
    expect(error).toBe(script.thrown[3]);
  });
});

describe('what is never repeated, whatever is listed?', () => {
  @Injectable()
  class Inner {
    @RateLimit({ max: 0, per: 60 })
    async limited(): Promise<void> {}

    @LockWith('one')
    async locked(inside: () => Promise<unknown>): Promise<unknown> {
      return inside();
    }

    @LockWith(arg(0), { onBlank: 'fail' })
    async keyed(_key: string | undefined): Promise<void> {}

    @InputSchema(z.string())
    async checked(_text: string): Promise<void> {}

    @OutputSchema(z.number())
    async answering(): Promise<number> {
      return 'nonsense' as never;
    }

    @IdempotentBy('one', { onDuplicate: 'fail' })
    async once(): Promise<void> {}

    @CircuitBreaker({ minimumCalls: 1 })
    async sick(): Promise<void> {
      throw new Other();
    }
  }

  @Injectable()
  class Outer {
    runs = 0;
    constructor(readonly inner: Inner) {}

    @RetryOn((_error) => true, AT_ONCE)
    async call(body: (inner: Inner) => unknown): Promise<unknown> {
      this.runs += 1;
      return body(this.inner);
    }
  }

  it.each([
    ['rate_limited', (inner: Inner) => inner.limited()],
    ['busy', (inner: Inner) => inner.locked(() => inner.locked(async () => undefined))],
    ['key_missing', (inner: Inner) => inner.keyed(undefined)],
    ['key_invalid', (inner: Inner) => inner.keyed({} as string)],
    ['input_invalid', (inner: Inner) => inner.checked(5 as never)],
    ['output_invalid', (inner: Inner) => inner.answering()],
    ['duplicate', (inner: Inner) => inner.once().then(() => inner.once())],
    ['circuit_open', (inner: Inner) => inner.sick().catch(() => inner.sick())],
  ])('the refusal of a nested call: %s', async (code, body) => {
    const { get, telemetry } = await boot({ providers: [Inner, Outer] }, realTime);
    const error: unknown = await get(Outer)
      .call(body)
      .catch((thrown: unknown) => thrown);
    expect(isRefusalError(error) && error.code).toBe(code);
    expect(get(Outer).runs).toBe(1);
    expect(telemetry.names).not.toContain('task_retried');
  });

  it.each([
    ['skip()', (): never => skip('nothing to do'), 'skipped'],
    ['fail()', (): never => fail('impossible'), 'failed'],
  ])('%s', async (_what, body, status) => {
    const { get, cmdx } = await boot({ providers: [Inner, Outer] }, realTime);
    const result = await cmdx.execute(() => get(Outer).call(body));
    expect(result).toMatchObject({ status, retries: 0 });
    expect(get(Outer).runs).toBe(1);
  });
});

describe('what happens around four attempts?', () => {
  @Injectable()
  class Look {
    store: MemoryStore | undefined;
    async at(what: string): Promise<string> {
      const keys = ['rl:Payments.pay', 'lock:Payments.pay:one', 'idem:Payments.pay:one'];
      const reports = await Promise.all(keys.map((key) => this.store?.inspect(`cmdx:${key}`)));
      return `${what}: ${reports.map((report) => report?.value).join(', ')}`;
    }
  }

  @Injectable()
  class Payments {
    readonly seen: (string | undefined)[] = [];

    constructor(readonly look: Look) {}

    @RateLimit(perTask, { max: 5, per: 60 })
    @CircuitBreaker('bank', { minimumCalls: 2 })
    @LockWith('one', { ttl: 30 })
    @IdempotentBy('one', { lease: 30 })
    @RetryOn(Flaky, AT_ONCE)
    async pay(succeedsAt: number): Promise<string> {
      const { tid, lock } = currentInvocation() ?? {};
      this.seen.push(await this.look.at(`${tid} ${lock?.key}`));
      if (this.seen.length < succeedsAt) throw new Flaky(`attempt ${this.seen.length}`);
      return 'paid';
    }
  }

  it.each([
    ['succeeds at the last', 4, 'release+complete'],
    ['fails for good', 9, 'release+unclaim'],
  ])('one trip in and one out: one charge, lease, claim, sample (%s)', async (_how, at, out) => {
    const store = new OverheardStore();
    const { get, telemetry } = await boot(
      { providers: [{ provide: Look, useValue: Object.assign(new Look(), { store }) }, Payments] },
      { ...realTime, store },
    );
    await get(Payments)
      .pay(at)
      .catch(() => undefined);
    const { seen } = get(Payments);
    expect(seen).toHaveLength(4);
    // The same lease, claim and count at each attempt.
    expect(new Set(seen).size).toBe(1);
    expect(store.asked).toEqual(['fixed_window+circuit+lease+claim', expect.any(String)]);
    expect(store.asked[1]?.split('+').toSorted()).toEqual(`outcome+${out}`.split('+').toSorted());
    expect(telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      'lock_acquired',
      'idempotency_claimed',
      'task_retried',
      'task_retried',
      'task_retried',
      'task_executed',
    ]);
  });

  it('attempts belong to one invocation', async () => {
    const { get, telemetry } = await boot({ providers: [Api] }, realTime);
    const seen: unknown[] = [];
    const script = new Script([
      () => {
        const { tid, cid, args, instance } = currentInvocation() ?? {};
        seen.push({ tid, cid, args, instance });
        throw new Flaky();
      },
    ]);
    await get(Api)
      .byClass(script)
      .catch(() => undefined);
    expect(seen).toHaveLength(4);
    for (const each of seen) expect(each).toEqual(seen[0]);
    expect(new Set(telemetry.events.map(({ tid }) => tid)).size).toBe(1);
  });

  it('a method whose key is blank is repeated all the same', async () => {
    @Injectable()
    class Blank {
      runs = 0;
      @LockWith(arg(0))
      @RetryOn(Flaky, AT_ONCE)
      async call(_key?: string): Promise<string> {
        this.runs += 1;
        if (this.runs < 3) throw new Flaky();
        return 'done';
      }
    }
    const { get } = await boot({ providers: [Blank] }, realTime);
    await expect(get(Blank).call()).resolves.toBe('done');
  });
});

describe('what is told?', () => {
  it('each repetition before its sleep, with the error that caused it', async () => {
    @Injectable()
    class Slow {
      runs = 0;
      @RetryOn(Flaky, { delay: '200ms', jitter: 'linear' })
      async call(): Promise<string> {
        this.runs += 1;
        throw new Flaky(`attempt ${this.runs}`);
      }
    }
    const { get, telemetry, clock } = await boot({ providers: [Slow] });
    const call = get(Slow).call();
    const told = (): unknown[] => telemetry.of('task_retried').map(({ payload }) => payload);
    const error = (attempt: number): unknown =>
      expect.objectContaining({ message: `attempt ${attempt}` });
    const first = { attempt: 1, delay: 0.2, error: error(1) };
    const second = { attempt: 2, delay: 0.4, error: error(2) };
    await clock.advance(0);
    expect([get(Slow).runs, told()]).toEqual([1, [first]]);
    await clock.advance('199ms');
    expect(get(Slow).runs).toBe(1);
    await clock.advance('1ms');
    expect([get(Slow).runs, told()]).toEqual([2, [first, second]]);
    const rejected = expect(call).rejects.toThrow('attempt 4');
    await clock.advance('400ms');
    await clock.advance('599ms');
    expect(get(Slow).runs).toBe(3);
    await clock.advance('1ms');
    await rejected;
    expect(told()).toEqual([first, second, { attempt: 3, delay: 0.6, error: error(3) }]);
    expect(telemetry.of('task_executed')[0]?.payload.result).toMatchObject({
      status: 'failed',
      retries: 3,
      durationMs: 1_200,
    });
  });
});
