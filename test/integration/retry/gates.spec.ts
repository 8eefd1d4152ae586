import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { type Invocation, LockWith, RetryOn, type RetryOptions, SystemClock } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootMessage } from '../../support/definition.js';

closeApplicationsAfterEach();

class Flaky extends Error {}

/** A class with the gates as written, whose body always throws a new error. */
function makeApi(options: RetryOptions) {
  @Injectable()
  class Api {
    readonly thrown: unknown[] = [];
    readonly asked: unknown[][] = [];
    patience = 2;

    @LockWith('one')
    @RetryOn(Flaky, { delay: 0, ...options })
    async call(_id: string): Promise<void> {
      const error = new Flaky();
      this.thrown.push(error);
      throw error;
    }

    isPatient(...asked: unknown[]): boolean {
      this.asked.push(asked);
      return (asked[1] as number) <= this.patience;
    }
  }
  return Api;
}

type Api = InstanceType<ReturnType<typeof makeApi>>;

async function callOf(options: RetryOptions): Promise<Api> {
  const ApiOf = makeApi(options);
  const { get } = await boot({ providers: [ApiOf] }, { clock: new SystemClock() });
  const api = get(ApiOf);
  await api.call('x').catch(() => undefined);
  return api;
}

describe('what may a gate of a retry be?', () => {
  const earlier = (_run: Invocation, _error: unknown, attempt: number): boolean => attempt < 2;

  it.each<[string, RetryOptions, number]>([
    ['if: true', { if: true }, 4],
    ['if: false', { if: false }, 1],
    ['unless: true', { unless: true }, 1],
    ['unless: false', { unless: false }, 4],
    ['if: (error, attempt)', { if: (_error: unknown, attempt: number) => attempt < 2 }, 2],
    ['unless: (error, attempt)', { unless: (_error: unknown, attempt: number) => attempt >= 3 }, 3],
    ['if: async', { if: async (_error: unknown, attempt: number) => attempt < 3 }, 3],
    ['if: an object', { if: { call: earlier } }, 2],
    [
      'if: an object, async',
      { if: { call: (...told: Parameters<typeof earlier>) => Promise.resolve(earlier(...told)) } },
      2,
    ],
    ['if: the name of a method', { if: 'isPatient' }, 3],
    ['unless: the name of a method', { unless: 'isPatient' }, 1],
    ['undefined is a no', { if: () => undefined }, 1],
    ['undefined is a no for unless, too', { unless: () => undefined }, 4],
    ['both', { if: true, unless: (_error: unknown, attempt: number) => attempt > 1 }, 2],
  ])('%s', async (_form, options, runs) => {
    const { thrown } = await callOf(options);
    expect(thrown).toHaveLength(runs);
  });

  it.each<[string, (gate: Gate) => RetryOptions]>([
    [
      'function',
      (gate) => ({
        if(this: unknown, ...asked: unknown[]) {
          return gate(this, ...asked);
        },
      }),
    ],
    [
      'async function',
      (gate) => ({
        async if(this: unknown, ...asked: unknown[]) {
          return gate(this, ...asked);
        },
      }),
    ],
  ])('a %s gets error and attempt, and this is the instance', async (_form, optionsOf) => {
    const heard: unknown[][] = [];
    const api = await callOf(optionsOf((...told) => heard.push(told) < 3));
    expect(heard).toEqual([
      [api, api.thrown[0], 1],
      [api, api.thrown[1], 2],
      [api, api.thrown[2], 3],
    ]);
  });

  it('so does a method', async () => {
    const api = await callOf({ if: 'isPatient' });
    expect(api.asked).toEqual(api.thrown.map((error, position) => [error, position + 1]));
  });

  it('an object gets the invocation before them', async () => {
    const heard: unknown[][] = [];
    class Gatekeeper {
      readonly limit = 2;
      call(invocation: Invocation, error: unknown, attempt: number): boolean {
        heard.push([invocation.task, invocation.args, error, attempt]);
        return attempt < this.limit;
      }
    }
    const api = await callOf({ if: new Gatekeeper() });
    expect(heard).toEqual([
      ['Api.call', ['x'], api.thrown[0], 1],
      ['Api.call', ['x'], api.thrown[1], 2],
    ]);
  });
});

type Gate = (...told: unknown[]) => boolean;

describe('when is a gate asked?', () => {
  it('before the sleep', async () => {
    const ApiOf = makeApi({ delay: '10s', if: 'isPatient' });
    const { get, clock, telemetry } = await boot({ providers: [ApiOf] });
    const api = get(ApiOf);
    const call = api.call('x');
    const rejected = expect(call).rejects.toBeInstanceOf(Flaky);
    await clock.advance(0);
    expect(api.asked).toHaveLength(1);
    api.patience = 1;
    await clock.advance('10s');
    expect(clock.pending).toBe(0);
    await rejected;
    expect(telemetry.of('task_retried')).toHaveLength(1);
    expect(clock.now()).toBe(10_000);
  });

  it('not about an error that is not listed, nor after the last attempt', async () => {
    const asked: unknown[] = [];
    const gate = (_error: unknown, attempt: number): boolean => asked.push(attempt) > 0;
    await callOf({ if: gate, limit: 2 });
    expect(asked).toEqual([1, 2]);
    asked.length = 0;

    @Injectable()
    class Other {
      @RetryOn(Flaky, { if: gate })
      async call(): Promise<void> {
        throw new Error('other');
      }
    }
    const { get } = await boot({ providers: [Other] });
    await expect(get(Other).call()).rejects.toThrow('other');
    expect(asked).toEqual([]);
  });

  it('unless is not asked when if has failed', async () => {
    let asked = 0;
    await callOf({ if: false, unless: () => (asked += 1) > 0 });
    expect(asked).toBe(0);
  });

  it('not about the policies around: their gates get the arguments of the method', async () => {
    const heard: unknown[] = [];
    @Injectable()
    class Api {
      @LockWith('one', { if: (id: string) => heard.push(['lock', id]) > 0 })
      @RetryOn(Flaky, { delay: 0, limit: 1, if: (_: unknown, n: number) => heard.push(n) > 0 })
      async call(_id: string): Promise<void> {
        throw new Flaky();
      }
    }
    const { get } = await boot({ providers: [Api] }, { clock: new SystemClock() });
    await expect(get(Api).call('x')).rejects.toBeInstanceOf(Flaky);
    expect(heard).toEqual([['lock', 'x'], 1]);
  });
});

describe('what if a gate is broken?', () => {
  it('what it throws or rejects with is what the caller gets', async () => {
    const broken = new Error('no gate');
    for (const gate of [
      (): never => {
        throw broken;
      },
      () => Promise.reject(broken),
    ]) {
      const ApiOf = makeApi({ if: gate });
      const { get, store } = await boot({ providers: [ApiOf] });
      await expect(get(ApiOf).call('x')).rejects.toBe(broken);
      expect(get(ApiOf).thrown).toHaveLength(1);
      expect(await store.inspect('cmdx:lock:Api.call:one')).toBeUndefined();
    }
  });

  it('one that names no method stops the boot', async () => {
    expect(await bootMessage(boot({ providers: [makeApi({ unless: 'isClosed' })] }))).toBe(
      'Api.call: @RetryOn option "unless": expected the name of a method of Api, got "isClosed"',
    );
  });
});
