import { describe, expect, it, jest } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  CircuitBreaker,
  CmdxModule,
  describePolicies,
  IdempotentBy,
  LockWith,
  OUTCOME_TABLE,
  type OutcomeRow,
  RateLimit,
  RetryOn,
  Telemetry,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../support/application.js';
import { firstCells, README, tableRows } from '../support/readme.js';

describe('does README.md list what there is?', () => {
  /** The names that the library lists when it meets one that it does not know. */
  function known(attempt: () => unknown): readonly string[] {
    try {
      attempt();
    } catch (error) {
      const [, list = ''] = /one of ([\w, ]+)/.exec(String(error)) ?? [];
      return list.split(', ').toSorted();
    }
    throw new Error('expected a list of names');
  }

  const apply = (decorator: unknown) =>
    (decorator as (target: object, name: string, descriptor: object) => void)({}, 'x', {
      value: async () => undefined,
    });
  const nope = { nope: 1 } as object;

  it.each<[string, () => unknown]>([
    ['@LockWith', () => apply(LockWith(nope))],
    ['@RateLimit', () => apply(RateLimit(nope))],
    ['@IdempotentBy', () => apply(IdempotentBy(nope))],
    ['@CircuitBreaker', () => apply(CircuitBreaker(nope))],
    ['@RetryOn', () => apply(RetryOn(nope))],
    ['Module', () => CmdxModule.forRoot(nope)],
    ['Telemetry', () => new Telemetry().subscribe('nope' as 'lock_busy', () => undefined)],
  ])('under "%s", and nothing else', (heading, attempt) => {
    const listed = [...new Set(firstCells(README, heading))].toSorted();
    expect(listed).toEqual(known(attempt));
  });

  it('and the defaults of the options?', () => {
    class Plain {
      @LockWith('key')
      @RateLimit({ max: 1, per: 1 })
      @IdempotentBy('key')
      @CircuitBreaker()
      @RetryOn(Error)
      async run(): Promise<void> {}
    }
    const { policies, retry } = describePolicies(Plain, 'run');
    const [limit, breaker, lock, idempotency] = policies;
    expect(lock?.options).toMatchObject({
      ttl: 300,
      wait: 0,
      onBusy: 'fail',
      namespace: 'cmdx:lock',
      onBlank: 'bypass',
      onStoreError: 'fail',
    });
    expect(limit?.options).toMatchObject({
      limiter: 'fixed_window',
      cost: 1,
      onLimit: 'fail',
      namespace: 'cmdx:rl',
    });
    expect(breaker?.options).toEqual({
      failureRate: 0.5,
      minimumCalls: 10,
      window: 60,
      openFor: 30,
      maxOpenFor: 600,
      permits: 1,
      probeTimeout: 60,
      onOpen: 'fail',
      namespace: 'cmdx:cb',
      onBlank: 'bypass',
      onStoreError: 'fail',
    });
    expect(retry).toEqual({ limit: 3, delay: 0.5 });
    expect(idempotency?.options).toEqual({
      ttl: '24h',
      lease: 60,
      wait: 30,
      onDuplicate: 'replay',
      onInProgress: 'fail',
      onAbandoned: 'fail',
      fingerprint: false,
      maxBytes: 64 * 1024,
      namespace: 'cmdx:idem',
      onBlank: 'bypass',
      onStoreError: 'fail',
    });
    const written = (heading: string) =>
      Object.fromEntries(
        tableRows(README, heading).map(([option = '', value]) => [option.slice(1, -1), value]),
      );
    expect(written('@CircuitBreaker')).toMatchObject({
      failureRate: '0.5',
      minimumCalls: '10',
      window: '60 s',
      openFor: '30 s',
      maxOpenFor: '600 s',
      permits: '1',
      probeTimeout: '60 s',
      onOpen: "`'fail'`",
      namespace: "`'cmdx:cb'`",
    });
    expect(written('@RetryOn')).toMatchObject({ limit: '3', delay: '0.5 s', maxDelay: 'none' });
  });
});

describe('is the table under "What an outcome means" the one in the code?', () => {
  const table: Readonly<Record<string, OutcomeRow>> = OUTCOME_TABLE;
  const rows = tableRows(README, 'What an outcome means').map(([, ...cells]) => cells);

  it('row by row', () => {
    const inCode = Object.entries(table).map(([kind, { sample, claim, retry }]) => [
      `\`${kind}\``,
      sample,
      claim,
      retry ? 'yes' : 'no',
    ]);
    expect(rows).toEqual(inCode);
  });

  it('and what is said below it of starts and leases?', () => {
    const free = Object.entries(table).filter(([, { quota }]) => quota === 'not charged');
    expect(free.map(([kind]) => kind)).toEqual(['input_invalid']);
    expect(new Set(Object.values(table).map(({ lease }) => lease))).toEqual(new Set(['released']));
  });
});

describe('are the formulas under "Jitters" those of the code?', () => {
  closeApplicationsAfterEach();

  class Flaky extends Error {}
  const DELAY = 0.8;
  const fibonacci = (n: number): number => (n < 3 ? 1 : fibonacci(n - 1) + fibonacci(n - 2));

  /** The sleeps that the library chooses. */
  async function sleeps(
    jitter: string | undefined,
    { random = 0.5, maxDelay = 1_000 } = {},
  ): Promise<readonly number[]> {
    @Injectable()
    class Service {
      @RetryOn(Flaky, {
        delay: DELAY,
        limit: 5,
        maxDelay,
        ...(jitter && { jitter }),
      })
      async run(): Promise<never> {
        throw new Flaky();
      }
    }
    const { get, clock, telemetry } = await boot({ providers: [Service] });
    // Not before: Nest needs numbers of its own while it boots.
    const dice = jest.spyOn(Math, 'random').mockReturnValue(random);
    const run = get(Service).run();
    const ended = expect(run).rejects.toThrow(Flaky);
    await clock.advance('1h');
    await ended;
    dice.mockRestore();
    return telemetry.of('task_retried').map(({ payload }) => payload.delay);
  }

  /** The sleeps that a formula of the page makes. */
  function worked(formula: string, random: number): readonly number[] {
    const names = ['delay', 'n', 'random', 'previous', 'fibonacci'];
    const compute = new Function(...names, `return ${formula};`) as (...args: unknown[]) => number;
    const made: number[] = [];
    for (let n = 1; n <= 5; n++) {
      const seconds = compute(DELAY, n, random, made.at(-1) ?? DELAY, fibonacci);
      made.push(Math.round(seconds * 1_000) / 1_000);
    }
    return made;
  }

  const rows = tableRows(README, 'Jitters').map(([name = '', text = '']) => ({
    name: /^`'(\w+)'`$/.exec(name)?.[1],
    formula: /^`([^`]+)`/.exec(text)?.[1] ?? '',
  }));

  it.each(rows)('$name: $formula', async ({ name, formula }) => {
    for (const random of [0, 0.25, 0.99]) {
      expect(await sleeps(name, { random })).toEqual(worked(formula, random));
    }
  });

  it('all seven, each of them capped', async () => {
    const names = rows.map(({ name }) => name);
    expect(names).toHaveLength(8);
    for (const name of names) {
      expect(Math.max(...(await sleeps(name, { maxDelay: 1 })))).toBeLessThanOrEqual(1);
      await expect(sleeps(`${name}s`)).rejects.toThrow(name ?? 'undefineds');
    }
  });
});
