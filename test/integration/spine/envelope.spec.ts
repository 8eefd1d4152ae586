import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  Cmdx,
  currentInvocation,
  DefinitionError,
  describePolicies,
  fail,
  fromRequest,
  header,
  type Invocation,
  type KeyResolver,
  LockBusyError,
  LockWith,
  perTask,
  RateLimit,
  type Result,
  resultOf,
  segment,
  skip,
  TaskFailedError,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const BOOM = new Error('boom');

@Injectable()
class Work {
  constructor(readonly door: Door) {}

  @LockWith(arg(0))
  async succeed(value: string): Promise<string> {
    return value;
  }

  @LockWith(perTask)
  async skipped(): Promise<string | undefined> {
    return skip('nothing to do', { code: 'idle', since: 'monday' });
  }

  @LockWith(perTask)
  async skippedBare(): Promise<string | undefined> {
    return skip();
  }

  @LockWith(perTask)
  async failed(): Promise<string> {
    return fail('no such account', { code: 'no_account', hint: 'secret' });
  }

  @LockWith(perTask)
  async failedBare(): Promise<string> {
    return fail('no');
  }

  @LockWith(perTask)
  async thrown(): Promise<string> {
    throw BOOM;
  }

  @LockWith(perTask)
  async thrownPrimitive(): Promise<string> {
    throw 'a text';
  }

  @LockWith(perTask)
  async held(): Promise<string> {
    await this.door.pass();
    return 'held';
  }

  @LockWith(perTask, { name: 'held-twin' })
  async hold(): Promise<void> {
    await this.door.pass();
  }

  @LockWith(perTask, { name: 'held-twin', onBusy: 'skip', ttl: 60 })
  async skipWhenHeld(): Promise<string | undefined> {
    return 'ran';
  }

  @LockWith(perTask, { name: 'held-twin', ttl: 60 })
  async failWhenHeld(): Promise<string> {
    return 'ran';
  }
}

async function settled(promise: Promise<unknown>): Promise<unknown> {
  try {
    return { value: await promise };
  } catch (error) {
    return { error };
  }
}

describe('What does the caller get, and what does execute answer?', () => {
  interface Expectation {
    readonly method: 'skipped' | 'skippedBare' | 'failed' | 'failedBare' | 'thrown';
    readonly called: unknown;
    readonly result: Partial<Omit<Result, 'metadata'>> & { readonly metadata?: object };
  }
  const expectations: readonly Expectation[] = [
    {
      method: 'skipped',
      called: { value: undefined },
      result: {
        status: 'skipped',
        state: 'interrupted',
        ok: true,
        ko: true,
        value: undefined,
        reason: 'nothing to do',
        metadata: { code: 'idle', since: 'monday' },
        cause: undefined,
      },
    },
    {
      method: 'skippedBare',
      called: { value: undefined },
      result: { status: 'skipped', reason: undefined, metadata: {}, cause: undefined },
    },
    {
      method: 'failed',
      called: {
        error: expect.objectContaining({
          name: 'TaskFailedError',
          code: 'no_account',
          reason: 'no such account',
        }),
      },
      result: {
        status: 'failed',
        state: 'interrupted',
        ok: false,
        ko: true,
        reason: 'no such account',
        metadata: { code: 'no_account', hint: 'secret' },
        cause: expect.any(TaskFailedError),
      },
    },
    {
      method: 'failedBare',
      called: { error: expect.objectContaining({ code: 'failed', reason: 'no' }) },
      result: { status: 'failed', reason: 'no', metadata: {} },
    },
    {
      method: 'thrown',
      called: { error: BOOM },
      result: {
        status: 'failed',
        state: 'interrupted',
        ok: false,
        ko: true,
        reason: 'boom',
        metadata: {},
        cause: BOOM,
      },
    },
  ];

  it.each(expectations)('the body says $method', async ({ method, called, result }) => {
    const { get, cmdx } = await boot({ providers: [Door, Work] });
    const work = get(Work);
    expect(await settled(work[method]())).toEqual(called);
    const answered = await cmdx.execute(() => work[method]());
    expect(answered).toMatchObject({ ...result, task: `Work.${method}`, retries: 0 });
  });

  it('a success: the value untouched, all fields, frozen', async () => {
    const { get, cmdx, clock } = await boot({ providers: [Door, Work] });
    const work = get(Work);
    await expect(work.succeed('value')).resolves.toBe('value');
    const executing = cmdx.execute(() => work.held());
    await clock.advance('250ms');
    work.door.open();
    const result: Result<string> = await executing;
    expect(result).toEqual({
      status: 'success',
      state: 'complete',
      ok: true,
      ko: false,
      value: 'held',
      reason: undefined,
      metadata: {},
      cause: undefined,
      task: 'Work.held',
      tid: expect.stringMatching(UUID_V7),
      cid: expect.stringMatching(UUID_V7),
      xid: undefined,
      retries: 0,
      durationMs: 250,
    });
    expect(Object.isFrozen(result)).toBe(true);
    expect(Object.isFrozen(result.metadata)).toBe(true);
  });

  it('the very object that the body returned, and the very error that it threw', async () => {
    const object = { some: 'thing' };
    @Injectable()
    class Same {
      @LockWith(perTask)
      async give(): Promise<object> {
        return object;
      }
    }
    const { get, cmdx } = await boot({ providers: [Same, Door, Work] });
    expect(await get(Same).give()).toBe(object);
    expect((await cmdx.execute(() => get(Same).give())).value).toBe(object);
    expect(await settled(get(Work).thrown())).toEqual({ error: BOOM });
    await expect(get(Work).thrown()).rejects.toBe(BOOM);
  });

  it('refused, the policy says skip: undefined, and skipped with the refusal as metadata', async () => {
    const { get, cmdx, store, telemetry } = await boot({ providers: [Door, Work] });
    const work = get(Work);
    const running = work.hold();
    const holder = await store.get('cmdx:lock:held-twin');
    await expect(work.skipWhenHeld()).resolves.toBeUndefined();
    const result = await cmdx.execute(() => work.skipWhenHeld());
    expect(result).toMatchObject({
      status: 'skipped',
      state: 'interrupted',
      ok: true,
      ko: true,
      reason: 'busy',
      cause: undefined,
    });
    expect(result.metadata).toEqual({
      code: 'busy',
      lockKey: 'cmdx:lock:held-twin',
      onBusy: 'skip',
      holder,
      retryAfter: 300,
    });
    expect(result.metadata).toEqual(telemetry.of('lock_busy').at(-1)?.payload);
    work.door.open();
    await running;
  });

  it('refused, the policy says fail: a RefusalError, and failed with the refusal as metadata', async () => {
    const { get, cmdx, telemetry } = await boot({ providers: [Door, Work] });
    const work = get(Work);
    const running = work.hold();
    await expect(work.failWhenHeld()).rejects.toThrow(LockBusyError);
    const result = await cmdx.execute(() => work.failWhenHeld());
    expect(result).toMatchObject({
      status: 'failed',
      state: 'interrupted',
      ok: false,
      ko: true,
      metadata: { code: 'busy', onBusy: 'fail' },
      cause: expect.any(LockBusyError),
    });
    expect(result.metadata).toEqual(telemetry.of('lock_busy').at(-1)?.payload);
    expect((result.cause as LockBusyError).tid).toBe(result.tid);
    work.door.open();
    await running;
  });

  it('task_executed tells the same Result', async () => {
    const { get, cmdx, telemetry } = await boot({ providers: [Door, Work] });
    for (const method of ['skipped', 'failed', 'thrown'] as const) {
      const result = await cmdx.execute(() => get(Work)[method]());
      expect(telemetry.of('task_executed').at(-1)?.payload.result).toBe(result);
    }
  });
});

@Injectable()
class Nested {
  constructor(readonly cmdx: Cmdx) {}

  @LockWith(perTask)
  async outer(): Promise<string> {
    await this.inner();
    await this.inner();
    return 'outer';
  }

  @RateLimit({ max: 100, per: 60 })
  async inner(): Promise<string> {
    return 'inner';
  }

  async unguarded(): Promise<string> {
    return this.inner();
  }

  @LockWith(perTask)
  async executes(): Promise<Result<string>> {
    return this.cmdx.execute(() => this.inner());
  }
}

describe('Which call does execute speak of?', () => {
  it('the one at the top level: nested calls do not count', async () => {
    const { get, cmdx } = await boot({ providers: [Nested] });
    const result = await cmdx.execute(() => get(Nested).outer());
    expect(result).toMatchObject({ task: 'Nested.outer', value: 'outer' });
  });

  it('also through an unguarded method, and after an await', async () => {
    const { get, cmdx } = await boot({ providers: [Nested] });
    const result = await cmdx.execute(async () => {
      await Promise.resolve();
      return get(Nested).unguarded();
    });
    expect(result).toMatchObject({ task: 'Nested.inner', value: 'inner' });
  });

  it.each([
    ['none', async () => undefined, 'got 0'],
    ['none, synchronously', () => 1, 'got 0'],
  ])('%s is an Error that says so', async (_, fn, message) => {
    const { cmdx } = await boot({ providers: [Nested] });
    await expect(cmdx.execute(fn)).rejects.toThrow(message);
  });

  it('two are an Error that says so', async () => {
    const { get, cmdx } = await boot({ providers: [Nested] });
    const nested = get(Nested);
    const executing = cmdx.execute(async () => {
      await nested.inner();
      await nested.inner();
    });
    await expect(executing).rejects.toThrow('exactly one guarded call');
    await expect(executing).rejects.toThrow('got 2');
  });

  it('an error of its own that fn throws before or after the call is its own', async () => {
    const { get, cmdx } = await boot({ providers: [Nested] });
    const own = new Error('of fn');
    const before = cmdx.execute(() => {
      throw own;
    });
    await expect(before).rejects.toBe(own);
    const after = cmdx.execute(async () => {
      await get(Nested).inner();
      throw own;
    });
    await expect(after).rejects.toBe(own);
  });

  it('a call that fn does not wait for is waited for', async () => {
    const { get, cmdx } = await boot({ providers: [Door, Work] });
    const work = get(Work);
    const executing = cmdx.execute<unknown>(() => {
      void work.held();
    });
    setImmediate(() => work.door.open());
    await expect(executing).resolves.toMatchObject({ status: 'success', value: 'held' });
  });

  it('inside a guarded method it nests like any call', async () => {
    const { get, cmdx } = await boot({ providers: [Nested] });
    const outer = await cmdx.execute(() => get(Nested).executes());
    expect(outer.task).toBe('Nested.executes');
    expect(outer.value).toMatchObject({ task: 'Nested.inner', cid: outer.cid });
    expect(outer.value?.tid).not.toBe(outer.tid);
  });
});

const SHARED = new Error('a constant, thrown again and again');

@Injectable()
class Failing {
  @LockWith(arg(0))
  async fails(_key: string, error: unknown): Promise<never> {
    throw error;
  }

  @LockWith(arg(0))
  async passesOn(key: string, error: unknown): Promise<void> {
    await this.fails(`${key}-inner`, error);
  }

  /** The nested failure is dealt with; a later sibling fails with the very same object. */
  @LockWith('recovering')
  async recovers(): Promise<void> {
    await this.passesOn('first', SHARED).catch(() => undefined);
    await this.throwsShared();
  }

  @LockWith('shared')
  async throwsShared(): Promise<void> {
    throw SHARED;
  }
}

describe('Whose Result does resultOf answer?', () => {
  it('of the innermost invocation that failed with the error', async () => {
    const { get } = await boot({ providers: [Failing] });
    const error = new Error('deep');
    await expect(get(Failing).passesOn('a', error)).rejects.toBe(error);
    expect(resultOf(error)).toMatchObject({
      task: 'Failing.fails',
      status: 'failed',
      cause: error,
    });
  });

  it('of the latest run, when the same object fails another chain', async () => {
    const { get, telemetry } = await boot({ providers: [Failing] });
    await get(Failing)
      .passesOn('a', SHARED)
      .catch(() => undefined);
    await get(Failing)
      .throwsShared()
      .catch(() => undefined);
    expect(resultOf(SHARED)?.task).toBe('Failing.throwsShared');
    expect(resultOf(SHARED)?.tid).toBe(telemetry.of('task_executed').at(-1)?.tid);
  });

  it('of the latest run, when the same object fails a sibling of the same chain', async () => {
    const { get } = await boot({ providers: [Failing] });
    await get(Failing)
      .recovers()
      .catch(() => undefined);
    expect(resultOf(SHARED)?.task).toBe('Failing.throwsShared');
  });

  it('undefined for primitives, and for errors that no invocation failed with', async () => {
    const { get } = await boot({ providers: [Door, Work] });
    await expect(get(Work).thrownPrimitive()).rejects.toBe('a text');
    expect(resultOf('a text')).toBeUndefined();
    expect(resultOf(undefined)).toBeUndefined();
    expect(resultOf(new Error('of nobody'))).toBeUndefined();
  });

  it('a refusal has one too', async () => {
    const { get } = await boot({ providers: [Door, Work] });
    const work = get(Work);
    const running = work.hold();
    const refused: unknown = await work.failWhenHeld().catch((error: unknown) => error);
    expect(resultOf(refused)).toMatchObject({
      task: 'Work.failWhenHeld',
      metadata: { code: 'busy' },
    });
    work.door.open();
    await running;
  });
});

@Injectable()
class Observed {
  readonly seen: [where: string, invocation: Invocation | undefined, tid: string | undefined][] =
    [];

  note(where: string): true {
    const invocation = currentInvocation();
    this.seen.push([where, invocation, invocation?.tid]);
    return true;
  }

  gate(): boolean {
    return this.note('gate by name');
  }

  @RateLimit(
    function (this: Observed, id: string) {
      this.note('key function');
      return id;
    },
    { max: 5, per: 60, if: 'gate' },
  )
  @LockWith(
    async function (this: Observed, id: string) {
      await Promise.resolve();
      this.note('async key');
      return id;
    },
    {
      if(this: Observed) {
        return this.note('gate function');
      },
    },
  )
  async run(_id: string): Promise<void> {
    this.note('body');
    await Promise.resolve();
    this.note('after an await');
    await new Promise((resolve) => setTimeout(resolve, 1));
    this.note('after a timer');
  }

  @LockWith('leaving')
  async leavesATimer(): Promise<{ readonly later: Promise<Invocation | undefined> }> {
    return {
      later: new Promise((resolve) => {
        setTimeout(() => resolve(currentInvocation()), 2);
      }),
    };
  }

  @LockWith('outer')
  async outer(): Promise<readonly (string | undefined)[]> {
    const before = currentInvocation()?.task;
    await this.run('a');
    return [before, currentInvocation()?.task];
  }
}

describe('Where is currentInvocation?', () => {
  it('in gates, keys, body, after awaits and timers it is the running one', async () => {
    const { get } = await boot({ providers: [Observed] });
    const observed = get(Observed);
    await observed.run('42');
    expect(observed.seen.map(([where]) => where)).toEqual([
      'gate by name',
      'key function',
      'gate function',
      'async key',
      'body',
      'after an await',
      'after a timer',
    ]);
    const [[, first] = []] = observed.seen;
    expect(first?.task).toBe('Observed.run');
    for (const [, invocation] of observed.seen) expect(invocation).toBe(first);
  });

  it('it carries arguments, instance, lock and an untouched signal', async () => {
    let seen: Partial<Invocation> = {};
    @Injectable()
    class Looks {
      @LockWith(arg(0))
      async run(_id: string, _count: number): Promise<void> {
        const { args, instance, lock, signal, context } = currentInvocation() as Invocation;
        seen = { args, instance, lock, signal, context };
      }
    }
    const { get } = await boot({ providers: [Looks] });
    await get(Looks).run('42', 7);
    expect(seen.args).toEqual(['42', 7]);
    expect(seen.instance).toBe(get(Looks));
    expect(seen.lock).toEqual({ key: 'cmdx:lock:Looks.run:42' });
    expect(seen.signal?.aborted).toBe(false);
    expect(seen.context).toBeUndefined();
  });

  it('undefined outside, after the end, and in what an ended one left behind', async () => {
    const { get } = await boot({ providers: [Observed] });
    expect(currentInvocation()).toBeUndefined();
    const { later } = await get(Observed).leavesATimer();
    expect(currentInvocation()).toBeUndefined();
    expect(await later).toBeUndefined();
  });

  it('after a nested call has ended it is the outer one again', async () => {
    const { get } = await boot({ providers: [Observed] });
    await expect(get(Observed).outer()).resolves.toEqual(['Observed.outer', 'Observed.outer']);
  });
});

describe('Which ids does an invocation have?', () => {
  it('uuids v7: an own tid, the cid of the chain, root for the first', async () => {
    const { get, telemetry } = await boot({ providers: [Nested] });
    await get(Nested).outer();
    const [outer, first, second] = telemetry.of('task_started');
    expect(outer).toMatchObject({ task: 'Nested.outer', root: true });
    expect(first).toMatchObject({ task: 'Nested.inner', root: false, cid: outer?.cid });
    expect(second).toMatchObject({ task: 'Nested.inner', root: false, cid: outer?.cid });
    const tids = [outer?.tid, first?.tid, second?.tid];
    expect(new Set(tids).size).toBe(3);
    for (const id of [...tids, outer?.cid]) expect(id).toMatch(UUID_V7);
  });

  it('all events of one invocation carry the same ids', async () => {
    const { get, telemetry } = await boot({ providers: [Nested] });
    await get(Nested).inner();
    expect(telemetry.names).toEqual(['task_started', 'rate_limit_admitted', 'task_executed']);
    const ids = telemetry.events.map(({ tid, cid, root, task }) => [tid, cid, root, task].join());
    expect(new Set(ids).size).toBe(1);
  });

  it('correlationId is asked once per chain, and all of the chain carry it', async () => {
    let asked = 0;
    const { get, telemetry, cmdx } = await boot(
      { providers: [Nested] },
      { correlationId: () => `request-${++asked}` },
    );
    await get(Nested).outer();
    expect(asked).toBe(1);
    expect(telemetry.of('task_started').map(({ xid }) => xid)).toEqual(Array(3).fill('request-1'));
    expect((await cmdx.execute(() => get(Nested).inner())).xid).toBe('request-2');
  });

  it('a correlationId that throws changes nothing: there is no xid', async () => {
    const { get, telemetry } = await boot(
      { providers: [Nested] },
      {
        correlationId: () => {
          throw BOOM;
        },
      },
    );
    await expect(get(Nested).inner()).resolves.toBe('inner');
    expect(telemetry.of('task_started')).toMatchObject([{ xid: undefined }]);
  });
});

const gateObject = { call: (invocation: Invocation) => invocation.args[0] === 'open' };
const calls: string[] = [];

@Injectable()
class Gated {
  isOpen(answer: string): boolean {
    return answer === 'open';
  }

  async isOpenLater(answer: string): Promise<boolean> {
    await Promise.resolve();
    return this.isOpen(answer);
  }

  @LockWith(perTask, { if: 'isOpen' })
  async ifMethod(_answer: string): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, { if: 'isOpenLater' })
  async ifAsyncMethod(_answer: string): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, {
    if(this: Gated, answer: string) {
      return this.isOpen(answer);
    },
  })
  async ifFunction(_answer: string): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, { if: async (answer: string) => answer === 'open' })
  async ifAsyncFunction(_answer: string): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, { if: gateObject })
  async ifObject(_answer: string): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, { unless: (answer: string) => answer !== 'open' })
  async unlessFunction(_answer: string): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, { if: (answer: string) => (answer === 'open' ? true : undefined) })
  async ifUndefined(_answer: string): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, { unless: (answer: string) => (answer === 'open' ? undefined : true) })
  async unlessUndefined(_answer: string): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, { if: true, unless: false })
  async booleansPass(): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, { if: false })
  async ifFalse(): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(perTask, { unless: true })
  async unlessTrue(): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  @LockWith(
    () => {
      calls.push('key');
      return 'key';
    },
    {
      if: (answer: string) => {
        calls.push('if');
        return answer === 'open';
      },
      unless: () => {
        calls.push('unless');
        return false;
      },
    },
  )
  async ordered(_answer: string): Promise<void> {
    calls.push('body');
  }

  @LockWith(perTask, {
    if: () => {
      throw BOOM;
    },
  })
  async throwing(): Promise<void> {
    calls.push('body');
  }

  @LockWith(perTask, { unless: () => Promise.reject(BOOM) })
  async rejecting(): Promise<void> {
    calls.push('body');
  }
}

describe('When does a gate let the policy apply?', () => {
  it.each([
    'ifMethod',
    'ifAsyncMethod',
    'ifFunction',
    'ifAsyncFunction',
    'ifObject',
    'unlessFunction',
    'ifUndefined',
    'unlessUndefined',
  ] as const)('%s', async (method) => {
    const { get, telemetry } = await boot({ providers: [Gated] });
    await expect(get(Gated)[method]('open')).resolves.toBe(`cmdx:lock:Gated.${method}`);
    telemetry.clear();
    await expect(get(Gated)[method]('closed')).resolves.toBeUndefined();
    expect(telemetry.names).toEqual(['task_started', 'task_executed']);
  });

  it('constants', async () => {
    const { get } = await boot({ providers: [Gated] });
    await expect(get(Gated).booleansPass()).resolves.toBe('cmdx:lock:Gated.booleansPass');
    await expect(get(Gated).ifFalse()).resolves.toBeUndefined();
    await expect(get(Gated).unlessTrue()).resolves.toBeUndefined();
  });

  it('if first, then unless, then the key; unless is not asked when if has failed', async () => {
    const { get } = await boot({ providers: [Gated] });
    calls.length = 0;
    await get(Gated).ordered('open');
    expect(calls.splice(0)).toEqual(['if', 'unless', 'key', 'body']);
    await get(Gated).ordered('closed');
    expect(calls.splice(0)).toEqual(['if', 'body']);
  });

  it.each(['throwing', 'rejecting'] as const)(
    'a %s gate fails the invocation, and the body does not run',
    async (method) => {
      const { get, cmdx } = await boot({ providers: [Gated] });
      calls.length = 0;
      await expect(get(Gated)[method]()).rejects.toBe(BOOM);
      expect(await cmdx.execute(() => get(Gated)[method]())).toMatchObject({
        status: 'failed',
        cause: BOOM,
      });
      expect(calls).toEqual([]);
    },
  );

  it('a gate that names no method is a DefinitionError at boot', async () => {
    @Injectable()
    class Misspelt {
      @LockWith(perTask, { if: 'isOpn' })
      async run(): Promise<void> {}
    }
    const booting = boot({ providers: [Misspelt] });
    await expect(booting).rejects.toThrow(DefinitionError);
    await expect(booting).rejects.toThrow(/Misspelt\.run.*"isOpn"/);
  });
});

@Injectable()
class TenantKey implements KeyResolver {
  async call(): Promise<string> {
    calls.push('inner');
    return 'tenant';
  }
}

const innerKeyObject = {
  async call() {
    calls.push('inner');
    return 'key';
  },
};

@Injectable()
class Ordered {
  @RateLimit({ max: 0, per: 60 })
  @LockWith(async () => {
    calls.push('inner');
    return 'key';
  })
  async asyncFunction(): Promise<void> {}

  @RateLimit({ max: 0, per: 60 })
  @LockWith(innerKeyObject)
  async asyncObject(): Promise<void> {}

  @RateLimit({ max: 0, per: 60 })
  @LockWith(TenantKey)
  async asyncClass(): Promise<void> {}

  @RateLimit({ max: 0, per: 60 })
  @LockWith(segment`${innerKeyObject}:${arg(0)}`)
  async asyncSegment(): Promise<void> {}

  async later(): Promise<boolean> {
    calls.push('inner');
    return true;
  }

  @RateLimit({ max: 0, per: 60 })
  @LockWith(perTask, { if: 'later' })
  async asyncGateByName(): Promise<void> {}

  @RateLimit({ max: 0, per: 60 })
  @LockWith(perTask, { unless: innerKeyObject as never })
  async asyncGateObject(): Promise<void> {}

  @RateLimit({ max: 0, per: 60 })
  @LockWith(() => {
    throw BOOM;
  })
  async throwingKey(): Promise<void> {}

  @RateLimit({ max: 0, per: 60 })
  @LockWith((() => ({ an: 'object' })) as unknown as () => string)
  async impossibleKey(): Promise<void> {}

  @RateLimit({ max: 0, per: 60 })
  @LockWith(() => Promise.reject(BOOM))
  async rejectingKey(): Promise<void> {}

  @RateLimit({ max: 0, per: 60 })
  @LockWith(perTask, {
    if: () => {
      throw BOOM;
    },
  })
  async throwingGate(): Promise<void> {}

  @RateLimit({ max: 1, per: 60 })
  @LockWith((() => ({ an: 'object' })) as unknown as () => string)
  async admittedThenImpossible(): Promise<void> {}

  @RateLimit({ max: 0, per: 60 })
  @LockWith(header('x-tenant'), { onBlank: 'fail' })
  async blankInside(): Promise<void> {}
}

describe('In which order are rings evaluated?', () => {
  it.each([
    'asyncFunction',
    'asyncObject',
    'asyncClass',
    'asyncSegment',
    'asyncGateByName',
    'asyncGateObject',
  ] as const)('%s of an inner ring is not called when an outer ring refuses', async (method) => {
    const { get } = await boot({ providers: [Ordered, TenantKey] });
    calls.length = 0;
    await expect(get(Ordered)[method]()).rejects.toMatchObject({ code: 'rate_limited' });
    expect(calls).toEqual([]);
  });

  it.each(['throwingKey', 'rejectingKey', 'impossibleKey', 'throwingGate', 'blankInside'] as const)(
    '%s of an inner ring never replaces the refusal of an outer one',
    async (method) => {
      const { get } = await boot({ providers: [Ordered, TenantKey] });
      await expect(get(Ordered)[method]()).rejects.toMatchObject({ code: 'rate_limited' });
    },
  );

  it('an outer ring that lets pass has charged before the inner key fails', async () => {
    const { get, store } = await boot({ providers: [Ordered, TenantKey] });
    await expect(get(Ordered).admittedThenImpossible()).rejects.toMatchObject({
      code: 'key_invalid',
    });
    expect(await store.get('cmdx:rl:Ordered.admittedThenImpossible')).toBe('1');
    await expect(get(Ordered).admittedThenImpossible()).rejects.toMatchObject({
      code: 'rate_limited',
    });
  });

  it('an asynchronous request key stands alone like any other', async () => {
    @Injectable()
    class Requests {
      @RateLimit({ max: 0, per: 60 })
      @LockWith(
        fromRequest(async () => {
          calls.push('inner');
          return 'key';
        }),
      )
      async run(): Promise<void> {}
    }
    expect(describePolicies(Requests, 'run').batches).toEqual([['rateLimit'], ['lock']]);
  });

  it('a key is computed once, before the body, also when the lock has to be waited for', async () => {
    const keys: string[] = [];
    @Injectable()
    class Waits {
      constructor(readonly door: Door) {}

      @LockWith(
        (order: { id: string }) => {
          keys.push(order.id);
          return order.id;
        },
        { wait: 10 },
      )
      async run(order: { id: string }): Promise<void> {
        order.id = 'changed by the body';
        await this.door.pass();
      }
    }
    const { get, clock, store } = await boot({ providers: [Door, Waits] });
    const first = get(Waits).run({ id: '42' });
    const second = get(Waits).run({ id: '42' });
    await clock.advance('2s');
    expect(keys).toEqual(['42', '42']);
    expect(await store.get('cmdx:lock:Waits.run:42')).toBeDefined();
    get(Door).open();
    await first;
    await clock.advance('1s');
    await second;
    expect(keys).toEqual(['42', '42']);
    expect(await store.get('cmdx:lock:Waits.run:42')).toBeUndefined();
  });

  it('the order of the decorators changes nothing', async () => {
    @Injectable()
    class Swapped {
      @LockWith(perTask)
      @RateLimit({ max: 5, per: 60 })
      async one(): Promise<void> {}

      @RateLimit({ max: 5, per: 60 })
      @LockWith(perTask)
      async two(): Promise<void> {}
    }
    const { get, telemetry } = await boot({ providers: [Swapped] });
    await get(Swapped).one();
    const one = [...telemetry.names];
    telemetry.clear();
    await get(Swapped).two();
    expect(one).toEqual(['task_started', 'rate_limit_admitted', 'lock_acquired', 'task_executed']);
    expect(telemetry.names).toEqual(one);
  });
});

@Injectable()
class Learned {
  asked = 0;

  /** A plain function: nobody can know that it answers a promise before it has. */
  @RateLimit({ max: 1, per: '1h' })
  @LockWith(function (this: Learned, id: string) {
    this.asked += 1;
    return Promise.resolve(id);
  })
  async run(id: string): Promise<string> {
    return id;
  }
}

describe('Is a plain function that returns a promise called before an outer ring refuses?', () => {
  it('not once it has been seen to return one', async () => {
    const application = await boot({ providers: [Learned] });
    const learned = application.get(Learned);
    expect(await learned.run('a')).toBe('a');
    expect(learned.asked).toBe(1);
    await expect(learned.run('a')).rejects.toMatchObject({ code: 'rate_limited' });
    expect(learned.asked).toBe(1);
  });
});

@Injectable()
class Lender {
  @LockWith(perTask)
  async lend(): Promise<string> {
    return 'lent';
  }
}

describe('What does a method do that another guarded instance has borrowed?', () => {
  it('rejects, and throws nothing', async () => {
    const application = await boot({ providers: [Lender, Learned] });
    const call = Lender.prototype.lend.call(application.get(Learned) as unknown as Lender);
    await expect(call).rejects.toThrow(/Learned\.lend is not guarded/);
  });
});
