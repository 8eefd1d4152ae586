import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  CircuitBreaker,
  CircuitBreakers,
  type EnterStep,
  IdempotentBy,
  type LeaveStep,
  LockWith,
  MemoryStore,
  RateLimit,
  RetryOn,
  StoreError,
} from 'nestjs-cmdx';
import { DUE } from '../../support/all-rings.js';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { decorateMethod, named } from '../../support/http-decorate.js';
import { bootOnRedis } from '../../support/on-redis.js';
import { startRedis } from '../../support/redis-server.js';
import { settledWithin } from '../../support/time.js';

closeApplicationsAfterEach();

const FOREVER = { ttl: '1h' } as const;
const RINGS = ['rateLimit', 'circuitBreaker', 'lock', 'idempotency'] as const;
const KINDS = {
  rateLimit: 'fixed_window',
  circuitBreaker: 'circuit',
  lock: 'lease',
  idempotency: 'claim',
};
type Ring = (typeof RINGS)[number];

const LOCK = 'cmdx:lock:account:acct_1';
const CLAIM = 'cmdx:idem:job:acct_1';
const CIRCUIT = 'cmdx:cb:bank';

/** The real store, which fails a trip with a step of that kind in it. */
class FailingStore extends MemoryStore {
  failsOn: EnterStep['kind'] | LeaveStep['kind'] | undefined;

  override enter(...args: Parameters<MemoryStore['enter']>): ReturnType<MemoryStore['enter']> {
    this.#fail(args[0]);
    return super.enter(...args);
  }

  override leave(...args: Parameters<MemoryStore['leave']>): ReturnType<MemoryStore['leave']> {
    this.#fail(args[0]);
    return super.leave(...args);
  }

  #fail(steps: readonly (EnterStep | LeaveStep)[]): void {
    if (!steps.some(({ kind }) => kind === this.failsOn)) return;
    throw new StoreError('disconnected', 'The store is gone.');
  }
}

class Flaky extends Error {}

interface Jobs {
  runs: number;
  run(account: string): Promise<string>;
}

/** A class whose rings say that, some of them with a key that takes time. */
function jobsClass(tolerant: readonly Ring[], slow: readonly Ring[] = []) {
  const options = (ring: Ring) => ({
    onStoreError: tolerant.includes(ring) ? ('run' as const) : ('fail' as const),
  });
  const key = (ring: Ring) =>
    slow.includes(ring) ? async (account: string): Promise<string> => account : arg(0);
  const jobs = named(
    'Jobs',
    class implements Jobs {
      runs = 0;
      async run(_account: string): Promise<string> {
        this.runs += 1;
        if (this.runs === 1) throw new Flaky();
        return 'done';
      }
    },
  );
  decorateMethod(jobs.prototype, 'run', [
    RateLimit({ max: 100, per: '1h', name: 'jobs', ...options('rateLimit') }),
    CircuitBreaker('bank', options('circuitBreaker')),
    LockWith(key('lock') as never, { name: 'account', ...options('lock') }),
    IdempotentBy(key('idempotency') as never, { name: 'job', ...options('idempotency') }),
    RetryOn(Flaky, { limit: 1, delay: 0 }),
  ]);
  Injectable()(jobs);
  return jobs;
}

interface Bench {
  readonly app: Application;
  readonly jobs: Jobs;
  readonly store: FailingStore;
}

async function start(jobs: ReturnType<typeof jobsClass>): Promise<Bench> {
  const store = new FailingStore();
  const app = await boot({ providers: [jobs] }, { store });
  return { app, jobs: app.get(jobs), store };
}

/** The call, and the sleep before its second attempt. */
async function run({ app, jobs }: Bench): Promise<unknown> {
  const call = jobs.run('acct_1').catch((error: unknown) => error);
  await app.clock.advance('1s');
  return call;
}

const subsets = RINGS.reduce<Ring[][]>(
  (all, ring) => [...all, ...all.map((each) => [...each, ring])],
  [[]],
);
const bypassed = (rings: readonly Ring[]): unknown[] =>
  rings.map((policy) => ({ policy, reason: 'store_error' }));

describe('the store does not answer: does the body run where only these say so?', () => {
  it.each(subsets.map((tolerant) => ({ tolerant })))('$tolerant', async ({ tolerant }) => {
    const bench = await start(jobsClass(tolerant));
    const { app, jobs, store } = bench;
    store.failsOn = 'lease';
    const all = tolerant.length === RINGS.length;
    const answer = await run(bench);

    if (all) expect(answer).toBe('done');
    else {
      expect(answer).toMatchObject({
        code: 'store_unavailable',
        status: 503,
        metadata: { policies: RINGS, operation: 'enter', reason: 'disconnected' },
        cause: expect.any(StoreError),
      });
    }
    // It is repeated as ever, and holds nothing that it could give back.
    expect(jobs.runs).toBe(all ? 2 : 0);
    expect(app.telemetry.names).toEqual([
      'task_started',
      'store_error',
      ...(all ? [...RINGS.map(() => 'policy_bypassed'), 'task_retried'] : []),
      'task_executed',
    ]);
    expect(app.telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual(
      all ? bypassed(RINGS) : [],
    );
  });
});

describe('only the second trip is lost: does the body run where only these say so?', () => {
  const inner = ['lock', 'idempotency'] as const;

  it.each([
    { tolerant: [] as Ring[], runs: false },
    { tolerant: ['rateLimit', 'circuitBreaker'] as Ring[], runs: false },
    { tolerant: ['lock'] as Ring[], runs: false },
    { tolerant: ['idempotency'] as Ring[], runs: false },
    // What the outer ones say has no weight: they were answered.
    { tolerant: ['lock', 'idempotency'] as Ring[], runs: true },
  ])('$tolerant: $runs', async ({ tolerant, runs }) => {
    const bench = await start(jobsClass(tolerant, ['lock']));
    const { app, jobs, store } = bench;
    await store.set(CIRCUIT, DUE, FOREVER);
    store.failsOn = 'lease';
    const answer = await run(bench);

    expect(jobs.runs).toBe(runs ? 2 : 0);
    if (runs) expect(answer).toBe('done');
    else expect(answer).toMatchObject({ code: 'store_unavailable', metadata: { policies: inner } });
    expect(app.telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      'circuit_half_opened',
      'store_error',
      ...(runs ? ['policy_bypassed', 'policy_bypassed', 'task_retried', 'circuit_closed'] : []),
      'task_executed',
    ]);
    expect(app.telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual(
      runs ? bypassed(inner) : [],
    );
    // The permit of the first trip was used, or given back.
    expect(await app.get(CircuitBreakers).inspect(CIRCUIT)).toMatchObject({
      state: runs ? 'closed' : 'half_open',
    });
    store.failsOn = undefined;
    expect(await run(bench)).toBe('done');
    expect(await store.get('cmdx:rl:jobs')).toBe('2');
  });

  it('one ring alone in it: it alone decides, and the lease of the trip before is given back', async () => {
    for (const tolerant of [[], ['idempotency']] as Ring[][]) {
      const bench = await start(jobsClass(tolerant, ['idempotency']));
      const { app, jobs, store } = bench;
      store.failsOn = 'claim';
      const answer = await run(bench);
      if (tolerant.length > 0) expect(answer).toBe('done');
      else expect(answer).toMatchObject({ metadata: { policies: ['idempotency'] } });
      expect(jobs.runs).toBe(tolerant.length > 0 ? 2 : 0);
      expect(await store.get(LOCK)).toBeUndefined();
      expect(await store.get(CLAIM)).toBeUndefined();
      expect(app.telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual(
        bypassed(tolerant),
      );
    }
  });

  it('and each ring has a trip of its own: each decides for itself', async () => {
    for (const failing of ['lock', 'idempotency'] as const) {
      for (const tolerant of [[], [failing]] as Ring[][]) {
        const bench = await start(jobsClass(tolerant, ['lock', 'idempotency']));
        const { app, store } = bench;
        store.failsOn = KINDS[failing] as EnterStep['kind'];
        const answer = await run(bench);
        if (tolerant.length > 0) expect(answer).toBe('done');
        else expect(answer).toMatchObject({ metadata: { policies: [failing] } });
        expect(await store.get(LOCK)).toBeUndefined();
        const { names } = app.telemetry;
        expect(names.includes('lock_acquired')).toBe(failing === 'idempotency');
        expect(names.includes('idempotency_claimed')).toBe(tolerant.includes('lock'));
      }
    }
  });
});

describe('what was granted cannot be given back: what does the caller get?', () => {
  it('what he would have got, and it is told which policies were not', async () => {
    const bench = await start(jobsClass([]));
    const { app, jobs, store } = bench;
    store.failsOn = 'release';
    expect(await run(bench)).toBe('done');
    expect(jobs.runs).toBe(2);
    expect(app.telemetry.of('store_error').map(({ payload }) => payload)).toEqual([
      {
        operation: 'leave',
        policies: ['circuitBreaker', 'lock', 'idempotency'],
        error: expect.any(StoreError),
      },
    ]);
    expect(app.telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      'lock_acquired',
      'idempotency_claimed',
      'task_retried',
      'store_error',
      'task_executed',
    ]);
  });
});

describe('a Redis that is killed', () => {
  it('while nobody is inside: calls whose rings all say so run, others are refused, and none hangs', async () => {
    const redis = await startRedis();
    const Tolerant = named('Tolerant', jobsClass(RINGS));
    const Strict = named('Strict', jobsClass(RINGS.slice(0, 3)));
    const options = { storeTimeout: '200ms' } as const;
    const tolerant = await bootOnRedis(redis.url, [Tolerant], options);
    const strict = await bootOnRedis(redis.url, [Strict], options);
    try {
      expect(await tolerant.get(Tolerant).run('warm')).toBe('done');
      expect(await strict.get(Strict).run('warm')).toBe('done');
      tolerant.telemetry.clear();
      await redis.kill();

      const runs = tolerant.get(Tolerant).runs;
      const calls = [tolerant.get(Tolerant).run('acct_1'), strict.get(Strict).run('acct_1')];
      const [answer, refusal] = await settledWithin(1_500, Promise.allSettled(calls));
      expect(answer).toEqual({ status: 'fulfilled', value: 'done' });
      expect(tolerant.get(Tolerant).runs).toBe(runs + 1);
      expect(refusal).toMatchObject({
        reason: { code: 'store_unavailable', metadata: { policies: RINGS } },
      });
      expect(tolerant.telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual(
        bypassed(RINGS),
      );
      // Nothing was granted, so that nothing is given back.
      expect(tolerant.telemetry.of('store_error').map(({ payload }) => payload.operation)).toEqual([
        'enter',
      ]);
    } finally {
      await Promise.all([tolerant.close(), strict.close()]);
      await redis.stop();
    }
  });
});
