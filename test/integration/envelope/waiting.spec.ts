import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  CircuitBreaker,
  CircuitBreakers,
  claimText,
  currentInvocation,
  IdempotentBy,
  LockWith,
  RateLimit,
} from 'nestjs-cmdx';
import { DUE, PROBED } from '../../support/all-rings.js';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootOnRedis } from '../../support/on-redis.js';
import { startRedis } from '../../support/redis-server.js';
import { until } from '../../support/time.js';
import { Door } from '../../support/door.js';
import { OverheardStore } from '../../support/overheard-store.js';

closeApplicationsAfterEach();

const CIRCUIT = 'cmdx:cb:bank';
const LOCK = 'cmdx:lock:Jobs.run:acct_1';
const CLAIM = 'cmdx:idem:Jobs.run:job_1';
const RATE_LIMIT = 'cmdx:rl:Jobs.run';
const FOREVER = { ttl: '1h' } as const;
const THEIRS = claimText({
  state: 'pending',
  run: 1,
  leaseUntil: Number.MAX_SAFE_INTEGER,
  token: 'somebody',
  fingerprint: '',
  outcome: '',
});

const BREAKER = {
  minimumCalls: 1,
  failureRate: 0.1,
  openFor: '10m',
  maxOpenFor: '10m',
  probeTimeout: '10m',
} as const;

@Injectable()
class Jobs {
  readonly door = new Door();
  runs = 0;

  @RateLimit({ max: 100, per: '1h' })
  @CircuitBreaker('bank', BREAKER)
  @LockWith(arg(0), { wait: '5m' })
  @IdempotentBy(arg(1), { onInProgress: 'wait', wait: '5m' })
  async run(_account: string, _job: string): Promise<string | undefined> {
    this.runs += 1;
    return currentInvocation()?.tid;
  }

  /** Asks the same bank. */
  @CircuitBreaker('bank', BREAKER)
  async ask(failure?: Error): Promise<string> {
    await this.door.pass();
    if (failure) throw failure;
    return 'answered';
  }
}

interface Bench {
  readonly app: Application;
  readonly jobs: Jobs;
  readonly store: OverheardStore;
}

/** What keeps a caller waiting. */
const PLACES = [
  {
    place: 'at the lock',
    key: LOCK,
    theirs: 'somebody',
    refused: 'fixed_window+circuit+lease+claim',
    again: 'circuit+lease+claim',
    told: [],
  },
  {
    place: 'at the claim',
    key: CLAIM,
    theirs: THEIRS,
    refused: 'fixed_window+circuit+lease+claim',
    again: 'circuit+lease+claim',
    told: ['lock_acquired'],
  },
] as const;

describe.each(PLACES)('what does a caller who waits $place do to a breaker?', (spot) => {
  /** A caller who waits, the breaker before him being as told. */
  async function waiting(circuit?: string): Promise<Bench & { call: Promise<unknown> }> {
    const store = new OverheardStore();
    const app = await boot({ providers: [Jobs] }, { store });
    const jobs = app.get(Jobs);
    if (circuit) await store.set(CIRCUIT, circuit, FOREVER);
    await store.set(spot.key, spot.theirs, FOREVER);
    const call = jobs.run('acct_1', 'job_1').catch((error: unknown) => error);
    await app.clock.advance('1s');
    return { app, jobs, store, call };
  }

  const stateOf = async ({ app }: Bench): Promise<string | undefined> =>
    (await app.get(CircuitBreakers).inspect(CIRCUIT))?.state;

  it('each try begins at the breaker, never at the rate limit, and is one trip', async () => {
    const { app, jobs, store, call } = await waiting();
    expect(store.asked.length).toBeGreaterThan(3);
    expect(store.asked[0]).toBe(spot.refused);
    expect(new Set(store.asked.slice(1))).toEqual(new Set([spot.again]));
    expect(await store.get(RATE_LIMIT)).toBe('1');
    // What was passed is told before the wait begins, once.
    expect(app.telemetry.names).toEqual(['task_started', 'rate_limit_admitted', ...spot.told]);

    await store.forget(spot.key);
    await app.clock.advance('1s');
    await expect(call).resolves.toBe(app.telemetry.events[0]?.tid);
    expect(jobs.runs).toBe(1);
    expect(await store.get(RATE_LIMIT)).toBe('1');
    expect(app.telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      'lock_acquired',
      'idempotency_claimed',
      'task_executed',
    ]);
  });

  it('he holds no permit, no lease and no claim: others are let in meanwhile', async () => {
    const bench = await waiting(DUE);
    const { app, jobs, store } = bench;
    expect(await stateOf(bench)).toBe('half_open');
    expect(await store.get(LOCK)).toBe(spot.key === LOCK ? 'somebody' : undefined);
    expect(await store.get(CLAIM)).toBe(spot.key === CLAIM ? THEIRS : undefined);
    const probe = jobs.ask();
    await app.clock.advance(0);
    expect(jobs.door.inside).toBe(1);
    jobs.door.open();
    await expect(probe).resolves.toBe('answered');
    expect(await stateOf(bench)).toBe('closed');
  });

  it('he is refused circuit_open when it opens meanwhile, however long he would have waited', async () => {
    const bench = await waiting(DUE);
    const { app, jobs, store, call } = bench;
    jobs.door.open();
    await expect(jobs.ask(new Error('sick'))).rejects.toThrow('sick');
    expect(await stateOf(bench)).toBe('open');
    await app.clock.advance('1s');

    await expect(call).resolves.toMatchObject({
      code: 'circuit_open',
      status: 503,
      retryAfter: expect.any(Number),
    });
    expect(jobs.runs).toBe(0);
    expect(await store.get(RATE_LIMIT)).toBe('1');
    const [{ tid } = { tid: '' }] = app.telemetry.of('circuit_rejected');
    const his = app.telemetry.events.filter((event) => event.tid === tid);
    expect(his.map(({ name }) => name)).toEqual([
      'task_started',
      'rate_limit_admitted',
      'circuit_half_opened',
      ...spot.told,
      'circuit_rejected',
      'task_executed',
    ]);
  });

  it('he is refused while another one is the probe', async () => {
    const { app, jobs, call } = await waiting(DUE);
    const probe = jobs.ask();
    await app.clock.advance('1s');
    await expect(call).resolves.toMatchObject({ code: 'circuit_open' });
    jobs.door.open();
    await expect(probe).resolves.toBe('answered');
    expect(jobs.runs).toBe(0);
  });

  it('when his turn comes he is the probe, and his outcome closes it', async () => {
    const bench = await waiting(DUE);
    const { app, jobs, store, call } = bench;
    await store.forget(spot.key);
    await app.clock.advance('1s');
    await expect(call).resolves.toEqual(expect.any(String));
    expect(jobs.runs).toBe(1);
    expect(await stateOf(bench)).toBe('closed');
    expect(app.telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      // Told by the try that made the change, although that one came no further.
      'circuit_half_opened',
      'lock_acquired',
      'idempotency_claimed',
      'circuit_closed',
      'task_executed',
    ]);
  });

  it('one whose patience ends leaves nothing behind, and the next one is let in', async () => {
    const bench = await waiting(DUE);
    const { app, jobs, store, call } = bench;
    await app.clock.advance('10m');
    await expect(call).resolves.toMatchObject({
      code: spot.key === LOCK ? 'busy' : 'in_progress',
    });
    expect(await stateOf(bench)).toBe('half_open');
    expect(await store.get(LOCK)).toBe(spot.key === LOCK ? 'somebody' : undefined);
    jobs.door.open();
    await expect(jobs.ask()).resolves.toBe('answered');
    expect(await stateOf(bench)).toBe('closed');
  });
});

it('whoever comes to an open breaker is refused at once, and never waits for the lock behind it', async () => {
  const store = new OverheardStore();
  const app = await boot({ providers: [Jobs] }, { store });
  await store.set(CIRCUIT, PROBED, FOREVER);
  await store.set(LOCK, 'somebody', FOREVER);
  await expect(app.get(Jobs).run('acct_1', 'job_1')).rejects.toMatchObject({
    code: 'circuit_open',
  });
  expect(store.asked).toEqual(['fixed_window+circuit+lease+claim']);
});

it('of twenty who wait at a lock, the first is the probe, and the others run after it has closed', async () => {
  const store = new OverheardStore();
  const app = await boot({ providers: [Jobs] }, { store });
  const jobs = app.get(Jobs);
  await store.set(CIRCUIT, DUE, FOREVER);
  await store.set(LOCK, 'somebody', FOREVER);
  const calls = Array.from({ length: 20 }, (_, index) => jobs.run('acct_1', `job_${index}`));
  await app.clock.advance('2s');
  expect(jobs.runs).toBe(0);
  await store.forget(LOCK);
  await app.clock.advance('4m');

  expect(new Set(await Promise.all(calls)).size).toBe(20);
  expect(app.telemetry.of('circuit_half_opened')).toHaveLength(1);
  expect(app.telemetry.of('circuit_closed')).toHaveLength(1);
  const { names } = app.telemetry;
  expect(names.indexOf('circuit_closed')).toBeLessThan(names.indexOf('task_executed'));
  expect(await store.get(RATE_LIMIT)).toBe('20');
});

it('on Redis: a caller who waits in one application is refused when another one opens the breaker', async () => {
  const redis = await startRedis();
  try {
    const [here, there] = await Promise.all([
      bootOnRedis(redis.url, [Jobs]),
      bootOnRedis(redis.url, [Jobs]),
    ]);
    await here.store.set(LOCK, 'somebody', FOREVER);
    const call = here.get(Jobs).run('acct_1', 'job_1');
    const refused = expect(call).rejects.toMatchObject({ code: 'circuit_open' });
    await until(() => here.telemetry.names.includes('rate_limit_admitted'), 'the first try');
    there.get(Jobs).door.open();
    await expect(there.get(Jobs).ask(new Error('sick'))).rejects.toThrow('sick');
    await refused;
    expect(await here.store.get(RATE_LIMIT)).toBe('1');
    expect(await here.store.get(LOCK)).toBe('somebody');
    await Promise.all([here.close(), there.close()]);
  } finally {
    await redis.stop();
  }
});
