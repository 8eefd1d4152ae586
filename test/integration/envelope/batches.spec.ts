import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  CircuitBreaker,
  CircuitBreakers,
  describePolicies,
  IdempotentBy,
  LockWith,
  OutputSchema,
  RateLimit,
  RetryOn,
} from 'nestjs-cmdx';
import * as z from 'zod';
import { DUE } from '../../support/all-rings.js';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { OverheardStore } from '../../support/overheard-store.js';

closeApplicationsAfterEach();

const FOREVER = { ttl: '1h' } as const;

/** How a key is found out: what the next test wants. */
const finding = {
  calls: [] as string[],
  account: async (account: string): Promise<string> => account,
  job: async (_account: string, job: string): Promise<string> => job,
};

async function findAccount(account: string): Promise<string> {
  finding.calls.push('account');
  return finding.account(account);
}

async function findJob(account: string, job: string): Promise<string> {
  finding.calls.push('job');
  return finding.job(account, job);
}

@Injectable()
class Jobs {
  runs = 0;

  /** The lock has to be looked up. */
  @RateLimit({ max: 100, per: '1h', name: 'jobs' })
  @CircuitBreaker('bank')
  @LockWith(findAccount, { name: 'account' })
  @IdempotentBy(arg(1), { name: 'job' })
  @RetryOn(Error, { limit: 1, delay: 0 })
  @OutputSchema(z.string())
  async lookUpLock(_account: string, _job: string): Promise<string> {
    return this.#run();
  }

  /** The claim has to be looked up. */
  @RateLimit({ max: 100, per: '1h', name: 'jobs' })
  @CircuitBreaker('bank')
  @LockWith(arg(0), { name: 'account' })
  @IdempotentBy(findJob, { name: 'job' })
  async lookUpClaim(_account: string, _job: string): Promise<string> {
    return this.#run();
  }

  /** Everything has to be looked up. */
  @RateLimit(async () => 'all', { max: 100, per: '1h', name: 'jobs' })
  @CircuitBreaker(async () => 'acme', { name: 'bank' })
  @LockWith(findAccount, { name: 'account' })
  @IdempotentBy(findJob, { name: 'job' })
  async lookUpAll(_account: string, _job: string): Promise<string> {
    return this.#run();
  }

  /** A limiter of one's own, and a gate that takes its time. */
  @RateLimit({
    max: 100,
    per: '1h',
    limiter: () => ({ admitted: true, limiter: 'own' }),
  })
  @CircuitBreaker('bank')
  @LockWith(arg(0), { name: 'account', if: async () => true })
  @IdempotentBy(arg(1), { name: 'job' })
  async gated(_account: string, _job: string): Promise<string> {
    return this.#run();
  }

  async #run(): Promise<string> {
    this.runs += 1;
    return 'done';
  }
}

type Method = 'lookUpLock' | 'lookUpClaim' | 'lookUpAll' | 'gated';

interface Bench {
  readonly app: Application;
  readonly jobs: Jobs;
  readonly store: OverheardStore;
}

async function start(): Promise<Bench> {
  const store = new OverheardStore();
  const app = await boot({ providers: [Jobs] }, { store });
  finding.calls = [];
  finding.account = async (account) => account;
  finding.job = async (_account, job) => job;
  return { app, jobs: app.get(Jobs), store };
}

const circuitOf = (method: Method): string =>
  method === 'lookUpAll' ? 'cmdx:cb:bank:acme' : 'cmdx:cb:bank';
const LOCK = 'cmdx:lock:account:acct_1';
const CLAIM = 'cmdx:idem:job:job_1';

const RUN: readonly (readonly [Method, readonly string[]])[] = [
  ['lookUpLock', ['fixed_window+circuit', 'lease+claim']],
  ['lookUpClaim', ['fixed_window+circuit+lease', 'claim']],
  ['lookUpAll', ['fixed_window', 'circuit', 'lease', 'claim']],
  ['gated', ['circuit', 'lease+claim']],
];

describe('in how many trips are rings entered whose keys take time?', () => {
  it.each(RUN)('%s: %j, and one trip out', async (method, batches) => {
    const { app, jobs, store } = await start();
    await expect(jobs[method]('acct_1', 'job_1')).resolves.toBe('done');
    expect(store.asked).toEqual([...batches, 'outcome+release+complete']);
    expect(app.telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      'lock_acquired',
      'idempotency_claimed',
      'task_executed',
    ]);
    // The same when it is known by then that its keys take time.
    store.asked.length = 0;
    await expect(jobs[method]('acct_2', 'job_2')).resolves.toBe('done');
    expect(store.asked).toEqual([...batches, 'outcome+release+complete']);
  });

  it('describePolicies says so before', () => {
    expect(describePolicies(Jobs, 'lookUpLock').batches).toEqual([
      ['rateLimit', 'circuitBreaker'],
      ['lock', 'idempotency'],
    ]);
  });
});

/** What was granted by trips before a refusal: the leave that gives it back, and what is told. */
const REFUSED = [
  {
    refusal: 'busy',
    held: LOCK,
    method: 'lookUpLock',
    asked: ['fixed_window+circuit', 'lease+claim', 'unpermit'],
    told: ['lock_busy'],
  },
  {
    refusal: 'in_progress',
    held: CLAIM,
    method: 'lookUpLock',
    asked: ['fixed_window+circuit', 'lease+claim', 'unpermit'],
    told: ['lock_acquired', 'idempotency_in_progress'],
  },
  {
    refusal: 'in_progress',
    held: CLAIM,
    method: 'lookUpClaim',
    asked: ['fixed_window+circuit+lease', 'claim', 'unpermit+release'],
    told: ['lock_acquired', 'idempotency_in_progress'],
  },
  {
    refusal: 'busy',
    held: LOCK,
    method: 'lookUpAll',
    asked: ['fixed_window', 'circuit', 'lease', 'unpermit'],
    told: ['lock_busy'],
  },
  {
    refusal: 'in_progress',
    held: CLAIM,
    method: 'lookUpAll',
    asked: ['fixed_window', 'circuit', 'lease', 'claim', 'unpermit+release'],
    told: ['lock_acquired', 'idempotency_in_progress'],
  },
  {
    refusal: 'busy',
    held: LOCK,
    method: 'gated',
    asked: ['circuit', 'lease+claim', 'unpermit'],
    told: ['lock_busy'],
  },
] as const;

describe('what becomes of what the outer rings have granted, when an inner one', () => {
  it.each(REFUSED)('says $refusal in $method: it is given back', async (row) => {
    const { method, held, refusal, asked, told } = row;
    const { app, jobs, store } = await start();
    const circuit = circuitOf(method);
    await store.set(circuit, DUE, FOREVER);
    // Somebody else runs.
    await store.set(held, held === LOCK ? 'somebody' : 'p:1:9007199254740991:somebody::', FOREVER);
    await expect(jobs[method]('acct_1', 'job_1')).rejects.toMatchObject({ code: refusal });

    expect(store.asked).toEqual(asked);
    expect(app.telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      'circuit_half_opened',
      ...told,
      'task_executed',
    ]);
    expect(await store.get(LOCK)).toBe(held === LOCK ? 'somebody' : undefined);
    // The permit is free again.
    await expect(jobs[method]('acct_2', 'job_2')).resolves.toBe('done');
    expect(await app.get(CircuitBreakers).inspect(circuit)).toMatchObject({ state: 'closed' });
  });

  it.each([
    ['lookUpLock', ['fixed_window+circuit', 'unpermit'], 'account'],
    ['lookUpClaim', ['fixed_window+circuit+lease', 'unpermit+release'], 'job'],
  ] as const)('cannot tell its key in %s: it is given back', async (method, asked, key) => {
    const { app, jobs, store } = await start();
    await store.set(circuitOf(method), DUE, FOREVER);
    const broken = new Error('the directory is down');
    finding[key] = () => Promise.reject(broken);
    await expect(jobs[method]('acct_1', 'job_1')).rejects.toBe(broken);
    expect(jobs.runs).toBe(0);
    expect(store.asked).toEqual(asked);
    // Whose fault it is, the breaker cannot know: the body never ran.
    expect(await app.get(CircuitBreakers).inspect(circuitOf(method))).toMatchObject({
      state: 'half_open',
    });
    finding[key] = async () => 'found';
    await expect(jobs[method]('acct_1', 'job_1')).resolves.toBe('done');
  });

  it.each(['lookUpLock', 'lookUpClaim'] as const)(
    'steps aside for a blank key in %s: the rest goes on',
    async (method) => {
      const { app, jobs, store } = await start();
      const key = method === 'lookUpLock' ? 'account' : 'job';
      finding[key] = async () => '';
      await expect(jobs[method]('acct_1', 'job_1')).resolves.toBe('done');
      expect(app.telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual([
        { policy: method === 'lookUpLock' ? 'lock' : 'idempotency', reason: 'blank' },
      ]);
      expect(store.asked).toEqual(
        method === 'lookUpLock'
          ? ['fixed_window+circuit', 'claim', 'outcome+complete']
          : ['fixed_window+circuit+lease', 'outcome+release'],
      );
    },
  );
});

describe('is an inner key looked up in vain?', () => {
  it.each(['lookUpLock', 'lookUpClaim', 'lookUpAll'] as const)(
    'not in %s when the breaker is open',
    async (method) => {
      const { app, jobs } = await start();
      await app.get(CircuitBreakers).forceOpen(circuitOf(method));
      await expect(jobs[method]('acct_1', 'job_1')).rejects.toMatchObject({ code: 'circuit_open' });
      expect(finding.calls).toEqual([]);
    },
  );

  it('not when the lock before it is busy', async () => {
    const { jobs, store } = await start();
    await store.set(LOCK, 'somebody', FOREVER);
    for (const method of ['lookUpClaim', 'lookUpAll'] as const) {
      await expect(jobs[method]('acct_1', 'job_1')).rejects.toMatchObject({ code: 'busy' });
    }
    // Only the lock's own.
    expect(finding.calls).toEqual(['account']);
  });
});

describe('a caller who waits behind a key that took time', () => {
  @Injectable()
  class Patient {
    @RateLimit({ max: 100, per: '1h', name: 'jobs' })
    @CircuitBreaker('bank')
    @LockWith(findAccount, { name: 'account', wait: '1m' })
    @IdempotentBy(findJob, { name: 'job' })
    async run(_account: string, _job: string): Promise<string> {
      return 'done';
    }
  }

  it('gives the permit of the earlier trip back, and asks for all but the rate limit in one trip from then on', async () => {
    const store = new OverheardStore();
    const app = await boot({ providers: [Patient] }, { store });
    finding.calls = [];
    await store.set('cmdx:cb:bank', DUE, FOREVER);
    await store.set(LOCK, 'somebody', FOREVER);
    const call = app
      .get(Patient)
      .run('acct_1', 'job_1')
      .catch((error: unknown) => error);
    await app.clock.advance('1s');
    expect(store.asked.slice(0, 3)).toEqual(['fixed_window+circuit', 'lease', 'unpermit']);
    expect(new Set(store.asked.slice(3))).toEqual(new Set(['circuit+lease']));
    expect(await app.get(CircuitBreakers).inspect('cmdx:cb:bank')).toMatchObject({
      state: 'half_open',
    });
    await store.forget(LOCK);
    await app.clock.advance('1s');
    await expect(call).resolves.toBe('done');
    // The keys were found out once, and the claim was asked for once its turn had come.
    expect(finding.calls).toEqual(['account', 'job']);
    expect(store.asked.slice(-3)).toEqual(['circuit+lease', 'claim', 'outcome+release+complete']);
    expect(await store.get('cmdx:rl:jobs')).toBe('1');
    expect(app.telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      'circuit_half_opened',
      'lock_acquired',
      'idempotency_claimed',
      'circuit_closed',
      'task_executed',
    ]);
  });
});
