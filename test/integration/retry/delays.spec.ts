import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  type Backoff,
  type CmdxModuleOptions,
  RegisterJitter,
  RetryOn,
  type RetryOptions,
  SystemClock,
} from 'nestjs-cmdx';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootMessage, definitionMessage } from '../../support/definition.js';

closeApplicationsAfterEach();

class Flaky extends Error {
  constructor(readonly extra: object = {}) {
    super('flaky');
    Object.assign(this, extra);
  }
}

/** A class whose body always throws what it is given. */
function makeApi(options: RetryOptions) {
  @Injectable()
  class Api {
    runs = 0;
    @RetryOn(Flaky, options)
    async call(error: Flaky = new Flaky()): Promise<void> {
      this.runs += 1;
      throw error;
    }
  }
  return Api;
}

/** The sleeps, in seconds, of a call that fails for good. */
async function sleepsOf(
  { telemetry, clock }: Application,
  call: Promise<unknown>,
): Promise<number[]> {
  const settled = call.catch(() => undefined);
  await clock.advance(0);
  while (clock.pending > 0) await clock.advance('1s');
  await settled;
  return telemetry.of('task_retried').map(({ payload }) => payload.delay);
}

describe('how long does a call sleep before each repetition?', () => {
  it.each<[string, RetryOptions, number[]]>([
    ['0.5 s', {}, [0.5, 0.5, 0.5]],
    ['the delay', { delay: '2s' }, [2, 2, 2]],
    ['exponential', { delay: 1, jitter: 'exponential' }, [1, 2, 4]],
    ['linear', { delay: 1, jitter: 'linear' }, [1, 2, 3]],
    ['fibonacci', { delay: 1, jitter: 'fibonacci', limit: 5 }, [1, 1, 2, 3, 5]],
    ['at most maxDelay', { delay: 1, jitter: 'exponential', maxDelay: 3, limit: 4 }, [1, 2, 3, 3]],
    ['maxDelay below the delay', { delay: 1, maxDelay: '0.2s' }, [0.2, 0.2, 0.2]],
    ['what a function says', { jitter: ({ attempt }) => attempt / 10 }, [0.1, 0.2, 0.3]],
    ['at most maxDelay, too', { jitter: ({ attempt }) => attempt, maxDelay: 2 }, [1, 2, 2]],
    ['nothing', { delay: 0, limit: 2 }, [0, 0]],
  ])('%s', async (_what, options, expected) => {
    const Api = makeApi(options);
    const app = await boot({ providers: [Api] });
    expect(await sleepsOf(app, app.get(Api).call())).toEqual(expected);
    expect(app.get(Api).runs).toBe(expected.length + 1);
  });

  it.each<[RetryOptions['jitter'], number, number]>([
    ['half_random', 0.5, 1],
    ['full_random', 0, 1],
    ['bounded_random', 1, 2],
    ['decorrelated_jitter', 1, 5],
  ])('%s: something between %p s and %p s', async (jitter, from, to) => {
    const Api = makeApi({ delay: 1, jitter, maxDelay: to, limit: 40 });
    const app = await boot({ providers: [Api] });
    const sleeps = await sleepsOf(app, app.get(Api).call());
    expect(sleeps).toHaveLength(40);
    for (const seconds of sleeps) {
      expect(seconds).toBeGreaterThanOrEqual(from);
      expect(seconds).toBeLessThanOrEqual(to);
    }
    expect(new Set(sleeps).size).toBeGreaterThan(10);
  });

  it('without a delay it does not sleep at all: no timer stands between two attempts', async () => {
    const Api = makeApi({ delay: 0 });
    const clock = new SystemClock();
    const { get } = await boot({ providers: [Api] }, { clock });
    let turns = 0;
    const turn = setImmediate(() => (turns += 1));
    await expect(get(Api).call()).rejects.toThrow('flaky');
    clearImmediate(turn);
    expect([turns, get(Api).runs]).toEqual([0, 4]);
  });
});

describe('is a server believed that says when to come back?', () => {
  const jitter = 'linear';

  it.each<[string, object, number[]]>([
    ['in seconds', { retryAfter: 7 }, [7, 7, 7]],
    ['at once', { retryAfter: 0 }, [0, 0, 0]],
    ['in a header of axios', { response: { headers: { 'retry-after': '8' } } }, [8, 8, 8]],
    [
      'in a header of fetch',
      { response: new Response('', { headers: { 'Retry-After': '9' } }) },
      [9, 9, 9],
    ],
    ['in a header of its own', { headers: { 'retry-after': '10' } }, [10, 10, 10]],
    ['no: it says nothing that can be read', { retryAfter: -1 }, [1, 2, 3]],
    ['no: later than maxDelay is not worth another attempt', { retryAfter: 10.001 }, []],
  ])('%s', async (_how, said, expected) => {
    const Api = makeApi({ delay: 1, maxDelay: 10, jitter });
    const app = await boot({ providers: [Api] });
    expect(await sleepsOf(app, app.get(Api).call(new Flaky(said)))).toEqual(expected);
    expect(app.get(Api).runs).toBe(expected.length + 1);
  });

  it('as a date', async () => {
    const Api = makeApi({ delay: 1, limit: 1 });
    const app = await boot({ providers: [Api] });
    const date = new Date(Date.now() + 60_000).toUTCString();
    const error = new Flaky({ response: { headers: { 'retry-after': date } } });
    const [seconds] = await sleepsOf(app, app.get(Api).call(error));
    expect(seconds).toBeGreaterThan(57);
    expect(seconds).toBeLessThanOrEqual(60);
  });

  it.each([
    [60, [60, 60, 60]],
    [60.001, []],
  ])('without a maxDelay up to a minute: %p s', async (retryAfter, expected) => {
    const Api = makeApi({ delay: 1 });
    const app = await boot({ providers: [Api] });
    expect(await sleepsOf(app, app.get(Api).call(new Flaky({ retryAfter })))).toEqual(expected);
    expect(app.get(Api).runs).toBe(expected.length + 1);
  });

  it('an error that would have to wait too long reaches the caller at once', async () => {
    const Api = makeApi({ maxDelay: 1 });
    const { get, cmdx, clock } = await boot({ providers: [Api] });
    const error = new Flaky({ retryAfter: 3_600 });
    const result = await cmdx.execute(() => get(Api).call(error));
    expect(result).toMatchObject({ retries: 0, cause: error });
    expect(clock.now()).toBe(0);
  });
});

describe('which jitter does a name mean?', () => {
  const seconds = (n: number) => (): number => n;
  const options: CmdxModuleOptions = { jitters: { shared: seconds(1), other: seconds(2) } };

  @RegisterJitter('shared', seconds(3))
  abstract class Base {
    @RetryOn(Flaky, { jitter: 'shared', limit: 1 })
    async call(): Promise<void> {
      throw new Flaky();
    }

    @RetryOn(Flaky, { jitter: 'other', limit: 1 })
    async other(): Promise<void> {
      throw new Flaky();
    }
  }

  @Injectable()
  class Plain extends Base {}

  @Injectable()
  @RegisterJitter('shared', seconds(4))
  class Leaf extends Base {}

  it('the class’s own first, then its base’s, then the module’s', async () => {
    const app = await boot({ providers: [Plain, Leaf] }, options);
    const calls = [app.get(Plain).call(), app.get(Leaf).call(), app.get(Leaf).other()];
    expect(await sleepsOf(app, Promise.allSettled(calls))).toEqual([3, 4, 2]);
  });

  it('it is told the attempt, the delay, the last sleep, the cap, a dice and the error', async () => {
    const told: Backoff[] = [];
    const Api = makeApi({ jitter: 'mine', delay: 2, maxDelay: 30, limit: 2 });
    const mine = (backoff: Backoff): number => {
      told.push(backoff);
      return 5;
    };
    const app = await boot({ providers: [Api] }, { jitters: { mine } });
    const error = new Flaky();
    expect(await sleepsOf(app, app.get(Api).call(error))).toEqual([5, 5]);
    const same = { delay: 2, maxDelay: 30, random: expect.any(Number), error };
    expect(told).toEqual([
      { ...same, attempt: 1, previous: 2 },
      { ...same, attempt: 2, previous: 5 },
    ]);
  });

  it('an unknown one stops the boot, and the registered ones are listed', async () => {
    @Injectable()
    @RegisterJitter('mine', seconds(1))
    class Api {
      @RetryOn(Flaky, { jitter: 'exponental' })
      async call(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Api] }, options))).toBe(
      'Api.call: @RetryOn option "jitter": expected a registered jitter (exponential, half_random, full_random, bounded_random, linear, fibonacci, decorrelated_jitter, mine, shared, other), got "exponental"',
    );
  });

  it('a built-in name cannot be taken, on a class or in the module', async () => {
    const built =
      'exponential, half_random, full_random, bounded_random, linear, fibonacci, decorrelated_jitter';
    for (const name of ['linear', 'full_random', '']) {
      const rest = `: expected a name other than ${built}, got ${JSON.stringify(name)}`;
      expect(definitionMessage(() => RegisterJitter(name, seconds(1))(Plain))).toBe(
        `Plain: @RegisterJitter${rest}`,
      );
      expect(await bootMessage(boot({}, { jitters: { [name]: seconds(1) } }))).toBe(
        `CmdxModule.forRoot() option "jitters"${rest}`,
      );
    }
  });

  it('what cannot be called is no jitter', async () => {
    const wrong = 5 as unknown as () => number;
    expect(definitionMessage(() => RegisterJitter('mine', wrong)(Plain))).toBe(
      'Plain: @RegisterJitter("mine"): expected a function, got 5',
    );
    expect(await bootMessage(boot({}, { jitters: { mine: wrong } }))).toBe(
      'CmdxModule.forRoot() option "jitters"("mine"): expected a function, got 5',
    );
  });
});

describe('what if a jitter is broken?', () => {
  const broken = new Error('no dice');

  it.each<[string, () => number, unknown]>([
    ['answers NaN', () => Number.NaN, expect.objectContaining({ name: 'RangeError' })],
    [
      'answers a text',
      () => '2' as unknown as number,
      expect.objectContaining({ name: 'RangeError' }),
    ],
    [
      'throws',
      () => {
        throw broken;
      },
      broken,
    ],
  ])('one that %s fails the call instead of repeating it', async (_how, jitter, cause) => {
    const Api = makeApi({ jitter });
    const { get, cmdx } = await boot({ providers: [Api] });
    const error = new Flaky();
    const result = await cmdx.execute(() => get(Api).call(error));
    expect(result).toMatchObject({ status: 'failed', retries: 0 });
    expect(result.cause).toEqual(cause);
    if (result.cause !== broken) expect((result.cause as Error).cause).toBe(error);
    expect(get(Api).runs).toBe(1);
  });
});
