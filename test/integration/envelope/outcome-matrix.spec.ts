import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { BadGatewayException, Injectable, NotFoundException } from '@nestjs/common';
import {
  CircuitBreaker,
  claimText,
  type CmdxModuleOptions,
  currentInvocation,
  type EndingKind,
  fail,
  input,
  InputSchema,
  LeaseLostError,
  LockWith,
  OUTCOME_TABLE,
  RateLimit,
  type Result,
  skip,
  type Store,
  type TelemetryEventName,
  RowLockConflictError,
  TransactionInDoubtError,
} from 'nestjs-cmdx';
import { NEVER, Observable } from 'rxjs';
import {
  bootRings,
  drive,
  DUE,
  Ignored,
  type Keys,
  keysOf,
  LIMIT,
  type Order,
  orderOf,
  orderSchema,
  Payments,
  PROBED,
  type Receipt,
  RETRIES,
  tracesOf,
  Unlisted,
} from '../../support/all-rings.js';
import type { Application } from '../../support/application.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/time.js';

/** Where an outcome is provoked. */
interface Bench {
  readonly app: Application;
  readonly payments: Payments;
  readonly store: Store;
  readonly order: Order;
  readonly keys: Keys;
}

/** One way to end, and all that it means. */
interface Row {
  readonly outcome: string;
  /** The row of the outcome table. */
  readonly kind: EndingKind;
  /** What others have done before. */
  readonly before?: (bench: Bench) => unknown;
  readonly order?: Partial<Order>;
  /** What an attempt of the body does; without it the body succeeds. */
  readonly does?: (bench: Bench, attempt: number) => unknown;
  /** What every attempt of the body ends with, instead. */
  readonly throws?: (bench: Bench) => unknown;
  /** The status of the result, or why it failed. */
  readonly gets: string;
  readonly cause?: unknown;
  readonly runs: number;
  /** What the breaker is told; `none`: it never was asked; `refused`: it said no. */
  readonly sample: 'success' | 'failure' | 'ignored' | 'none' | 'refused';
  /** Where the options of the breaker say otherwise than the table. */
  readonly overruled?: true;
  /** What stands under the key; `unchanged`: what somebody else has left there. */
  readonly claim: 'done' | 'tombstone' | 'free' | 'in_progress' | 'unchanged';
  /** Starts that the rate limit has counted. */
  readonly quota: number;
  /** What was sent to Redis; left out where time plays a part. */
  readonly commands?: number | undefined;
  readonly events: readonly TelemetryEventName[];
  readonly options?: CmdxModuleOptions;
}

const STARTED = ['task_started'] as const;
const ADMITTED = [...STARTED, 'rate_limit_admitted'] as const;
const LOCKED = [...ADMITTED, 'lock_acquired'] as const;
const CLAIMED = [...LOCKED, 'idempotency_claimed'] as const;
const RAN = [...CLAIMED, 'task_executed'] as const;
const retried = (times: number): TelemetryEventName[] => Array(times).fill('task_retried');

const ONCE = { runs: 1, quota: 1, commands: 2, events: RAN } as const;
const REPEATED_IN_VAIN = {
  ...ONCE,
  runs: 1 + RETRIES,
  events: [...CLAIMED, ...retried(RETRIES), 'task_executed'],
} as const;
const REFUSED = { kind: 'unused', runs: 0, sample: 'ignored', quota: 1, commands: 1 } as const;
const LOST = {
  ...ONCE,
  options: { defaults: { idempotency: { lease: '300ms' } } },
  claim: 'unchanged',
  events: [...CLAIMED, 'idempotency_stale', 'task_executed'],
  // It depends on how often the claim was renewed.
  commands: undefined,
} as const;

const FOREVER = { ttl: '1h' } as const;
const claimOf = (leaseUntil: number): string =>
  claimText({
    state: 'pending',
    run: 1,
    leaseUntil,
    token: 'somebody',
    fingerprint: '',
    outcome: '',
  });
const LIVE_CLAIM = claimOf(Number.MAX_SAFE_INTEGER);
const DEAD_CLAIM = claimOf(0);

/** The same work, asked for by somebody with whom the row shares nothing else. */
const elsewhere = ({ order: { reference } }: Bench, changes: Partial<Order> = {}): Order =>
  orderOf('elsewhere', { reference, ...changes });

/** Somebody else takes the claim over, and the body hears of it. */
async function loseClaim({ store, keys }: Bench): Promise<unknown> {
  const { signal } = currentInvocation() as { readonly signal: AbortSignal };
  await store.set(keys.claim, LIVE_CLAIM, FOREVER);
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  return signal.reason;
}

/** What `skip` and `fail` throw. */
function thrownBy(signal: () => never): unknown {
  try {
    return signal();
  } catch (error) {
    return error;
  }
}

const SUCCESS: Row = {
  outcome: 'the body succeeds',
  kind: 'returned',
  ...ONCE,
  gets: 'success',
  sample: 'success',
  claim: 'done',
};

const ROWS: readonly Row[] = [
  SUCCESS,
  {
    outcome: 'the body succeeds at its third attempt',
    kind: 'returned',
    does: (_bench, attempt) => {
      if (attempt < 3) throw new Error('flaky');
      return { receipt: 'rc_3' };
    },
    ...ONCE,
    gets: 'success',
    runs: 3,
    sample: 'success',
    claim: 'done',
    events: [...CLAIMED, ...retried(2), 'task_executed'],
  },
  {
    outcome: 'the body succeeds although its claim is lost',
    kind: 'returned',
    does: async (bench) => {
      await loseClaim(bench);
      return { receipt: 'rc_late' };
    },
    ...LOST,
    gets: 'success',
    sample: 'success',
  },
  {
    outcome: 'the body returns what its schema refuses',
    kind: 'output_invalid',
    does: () => ({ receipt: 42 }),
    ...ONCE,
    gets: 'output_invalid',
    sample: 'ignored',
    claim: 'tombstone',
  },
  {
    outcome: 'skip()',
    kind: 'skipped',
    throws: () => thrownBy(() => skip('closed today')),
    ...ONCE,
    gets: 'skipped',
    sample: 'ignored',
    claim: 'free',
  },
  {
    outcome: 'fail()',
    kind: 'failed',
    throws: () => thrownBy(() => fail('no funds', { code: 'no_funds' })),
    ...ONCE,
    gets: 'no_funds',
    sample: 'ignored',
    claim: 'free',
  },
  {
    outcome: 'a nested call is refused',
    kind: 'refused',
    before: ({ store }) => store.set('cmdx:lock:Payments.post:ledger', 'somebody', FOREVER),
    throws: ({ payments }) => errorOf(payments.post({ account: 'ledger' })),
    ...ONCE,
    gets: 'busy',
    sample: 'ignored',
    claim: 'free',
    commands: 3,
    events: [...CLAIMED, 'task_started', 'lock_busy', 'task_executed', 'task_executed'],
  },
  {
    outcome: 'a nested call is given a wrong argument',
    kind: 'refused',
    throws: ({ payments }) => errorOf(payments.print({ receipt: 42 as never })),
    ...ONCE,
    gets: 'input_invalid',
    sample: 'ignored',
    claim: 'free',
    events: [...CLAIMED, 'task_started', 'task_executed', 'task_executed'],
  },
  {
    outcome: 'a nested call returns what its schema refuses',
    kind: 'nested_output_invalid',
    throws: ({ payments }) => errorOf(payments.count()),
    ...ONCE,
    gets: 'output_invalid',
    sample: 'failure',
    claim: 'free',
    events: [...CLAIMED, 'task_started', 'task_executed', 'task_executed'],
  },
  {
    outcome: 'the database ends the transaction',
    kind: 'conflict',
    throws: () => {
      const metadata = { code: 'row_conflict', table: 'invoices', sqlState: '40001' } as const;
      return new RowLockConflictError(metadata, { task: 'Invoices.pay', tid: 'a' }, undefined);
    },
    ...REPEATED_IN_VAIN,
    gets: 'row_conflict',
    sample: 'ignored',
    claim: 'free',
  },
  {
    outcome: 'the database does not say whether it has saved the work',
    kind: 'in_doubt',
    throws: () => new TransactionInDoubtError(new Error('Connection terminated')),
    ...ONCE,
    gets: 'failed',
    sample: 'failure',
    // Until its lease is over, and it is found abandoned.
    claim: 'in_progress',
  },
  {
    outcome: 'an HttpException below 500',
    kind: 'client_error',
    throws: () => new NotFoundException(),
    ...REPEATED_IN_VAIN,
    gets: 'failed',
    sample: 'ignored',
    claim: 'free',
  },
  {
    outcome: 'an HttpException below 500 that failOn names',
    kind: 'client_error',
    throws: () => Object.assign(new NotFoundException(), { counts: true }),
    ...REPEATED_IN_VAIN,
    gets: 'failed',
    sample: 'failure',
    overruled: true,
    claim: 'free',
  },
  {
    outcome: 'an HttpException of 500 or more',
    kind: 'threw',
    throws: () => new BadGatewayException(),
    ...REPEATED_IN_VAIN,
    gets: 'failed',
    sample: 'failure',
    claim: 'free',
  },
  {
    outcome: 'an error, however often the body is repeated',
    kind: 'threw',
    throws: () => new Error('down'),
    ...REPEATED_IN_VAIN,
    gets: 'failed',
    sample: 'failure',
    claim: 'free',
  },
  {
    outcome: 'something thrown that is no error',
    kind: 'threw',
    throws: () => 'down',
    ...REPEATED_IN_VAIN,
    gets: 'failed',
    sample: 'failure',
    claim: 'free',
  },
  {
    outcome: 'an error that the breaker ignores',
    kind: 'threw',
    throws: () => new Ignored(),
    ...REPEATED_IN_VAIN,
    gets: 'failed',
    sample: 'ignored',
    overruled: true,
    claim: 'free',
  },
  {
    outcome: 'an error that no retry lists',
    kind: 'threw',
    does: () => {
      throw new Unlisted();
    },
    ...ONCE,
    gets: 'failed',
    sample: 'failure',
    claim: 'free',
  },
  {
    outcome: 'an AbortError of the body',
    kind: 'aborted',
    throws: () => Object.assign(new Error('aborted'), { name: 'AbortError' }),
    ...ONCE,
    gets: 'failed',
    sample: 'ignored',
    claim: 'free',
  },
  {
    outcome: 'the claim is lost, and the body gives up',
    kind: 'aborted',
    throws: loseClaim,
    ...LOST,
    gets: 'failed',
    cause: expect.any(LeaseLostError),
    sample: 'ignored',
  },
  {
    outcome: 'the rate limit refuses',
    before: ({ store, keys }) => store.incr(keys.rateLimit, { by: LIMIT, ...FOREVER }),
    ...REFUSED,
    gets: 'rate_limited',
    sample: 'none',
    claim: 'free',
    // A denied start counts, too.
    quota: LIMIT + 1,
    events: [...STARTED, 'rate_limit_exceeded', 'task_executed'],
  },
  {
    outcome: 'the circuit breaker refuses',
    before: ({ store, keys }) => store.set(keys.circuit, PROBED, FOREVER),
    ...REFUSED,
    gets: 'circuit_open',
    sample: 'refused',
    claim: 'free',
    events: [...ADMITTED, 'circuit_rejected', 'task_executed'],
  },
  {
    outcome: 'the lock is busy',
    before: ({ store, keys }) => store.set(keys.lock, 'somebody', FOREVER),
    ...REFUSED,
    gets: 'busy',
    claim: 'free',
    events: [...ADMITTED, 'lock_busy', 'task_executed'],
  },
  {
    outcome: 'the work is in progress',
    before: ({ store, keys }) => store.set(keys.claim, LIVE_CLAIM, FOREVER),
    ...REFUSED,
    gets: 'in_progress',
    claim: 'unchanged',
    events: [...LOCKED, 'idempotency_in_progress', 'task_executed'],
  },
  {
    outcome: 'the work is done, and its answer is given again',
    before: (bench) => bench.payments.pay(elsewhere(bench)),
    ...REFUSED,
    gets: 'skipped',
    claim: 'unchanged',
    events: [...LOCKED, 'idempotency_duplicate', 'task_executed'],
  },
  {
    outcome: 'the work was of another payload',
    before: (bench) => bench.payments.pay(elsewhere(bench, { amount: 1_000 })),
    ...REFUSED,
    gets: 'payload_mismatch',
    claim: 'unchanged',
    events: [...LOCKED, 'idempotency_mismatch', 'task_executed'],
  },
  {
    outcome: 'the work was abandoned',
    before: ({ store, keys }) => store.set(keys.claim, DEAD_CLAIM, FOREVER),
    ...REFUSED,
    gets: 'abandoned',
    claim: 'unchanged',
    events: [...LOCKED, 'idempotency_abandoned', 'task_executed'],
  },
  {
    outcome: 'the innermost key is none',
    order: { reference: { not: 'a key' } },
    ...REFUSED,
    gets: 'key_invalid',
    claim: 'free',
    // The rings before it let pass, and get back what they gave.
    commands: 2,
    events: [...LOCKED, 'task_executed'],
  },
  {
    outcome: 'the input is invalid',
    order: { amount: -1 },
    ...REFUSED,
    kind: 'input_invalid',
    gets: 'input_invalid',
    sample: 'none',
    claim: 'free',
    quota: 0,
    commands: 0,
    events: [...STARTED, 'task_executed'],
  },
];

const errorOf = (call: Promise<unknown>): Promise<unknown> => call.catch((error: unknown) => error);

/** Endings that only a Nest handler has; see outcome-matrix-http.spec.ts. */
const OF_HANDLERS: readonly EndingKind[] = ['answered', 'unanswered', 'server_error'];

const PLACES = ['memory', 'Redis'] as const;
type Place = (typeof PLACES)[number];

let redis: RedisServer;
let proxy: TcpProxy;
const applications = new Map<Place, Application>();
const opened: Application[] = [];
/** Each test has keys of its own, although all share the applications. */
let tests = 0;

beforeAll(async () => {
  redis = await startRedis();
  proxy = await TcpProxy.start(redis.port);
  for (const place of PLACES) applications.set(place, await bootAt(place));
});

afterAll(async () => {
  for (const { close } of opened) await close();
  await proxy.stop();
  await redis.stop();
});

async function bootAt(place: Place, options?: CmdxModuleOptions): Promise<Application> {
  const app = await bootRings([Payments], place === 'Redis' ? proxy.url : undefined, options);
  opened.push(app);
  // The scripts are loaded, and the connection is warm.
  await app.get(Payments).pay(orderOf(`warm-${(tests += 1)}`));
  return app;
}

async function setUp(place: Place, row: Row): Promise<Bench> {
  const app = row.options
    ? await bootAt(place, row.options)
    : (applications.get(place) as Application);
  const payments = app.get(Payments);
  const order = orderOf(`order-${(tests += 1)}`, row.order);
  payments.body = () => ({ receipt: 'rc_1' });
  const bench: Bench = { app, payments, store: app.store, order, keys: keysOf(order) };
  await row.before?.(bench);
  const { does, throws } = row;
  if (does) payments.body = (attempt) => does(bench, attempt);
  if (throws) {
    payments.body = async () => {
      throw await throws(bench);
    };
  }
  payments.runs = 0;
  app.telemetry.clear();
  return bench;
}

function run(place: Place, { app, payments, order }: Bench): Promise<Result> {
  const call = app.cmdx.execute(() => payments.pay(order));
  return place === 'Redis' ? call : drive(app.clock, call);
}

/** In the words of a row. */
const ended = ({ status, metadata }: Result): string =>
  status === 'failed' ? String(metadata.code ?? status) : status;

const table = ROWS.map((row) => [row.outcome, row] as const);

describe.each(PLACES)('what does an outcome leave behind, on %s?', (place) => {
  it.each(table)('%s', async (_outcome, row) => {
    const bench = await setUp(place, row);
    const before = await tracesOf(bench.app, bench.keys);
    const sent = proxy.commandsFromClient;
    const result = await run(place, bench);
    const commands = proxy.commandsFromClient - sent;
    const after = await tracesOf(bench.app, bench.keys);

    expect(ended(result)).toBe(row.gets);
    if (row.cause) expect(result.cause).toEqual(row.cause);
    expect(bench.payments.runs).toBe(row.runs);
    expect(result.retries).toBe(Math.max(0, row.runs - 1));
    expect(bench.app.telemetry.names).toEqual(row.events);
    expect(after).toEqual({
      quota: row.quota,
      circuit: before.circuit,
      calls: row.sample === 'success' || row.sample === 'failure' ? 1 : 0,
      failures: row.sample === 'failure' ? 1 : 0,
      lease: before.lease,
      ...claimAfter(row, result, before),
    });
    if (place === 'Redis' && row.commands !== undefined) expect(commands).toBe(row.commands);
  });
});

type Traces = Awaited<ReturnType<typeof tracesOf>>;

function claimAfter(
  { claim }: Row,
  { tid }: Result,
  before: Traces,
): Pick<Traces, 'claim' | 'claimedBy'> {
  if (claim === 'free') return { claim: undefined, claimedBy: undefined };
  if (claim !== 'unchanged') return { claim, claimedBy: tid };
  // One that was lost while the body ran is the thief's.
  return before.claim === undefined
    ? { claim: 'in_progress', claimedBy: 'somebody' }
    : { claim: before.claim, claimedBy: before.claimedBy };
}

const AFTER_A_PROBE = {
  success: { state: 'closed', next: 'success', told: 'circuit_closed' },
  failure: { state: 'open', next: 'circuit_open', told: 'circuit_opened' },
  ignored: { state: 'half_open', next: 'success', told: undefined },
  // Its time of being open is over all the same.
  none: { state: 'open', next: 'success', told: undefined },
  refused: { state: 'half_open', next: 'circuit_open', told: undefined },
} as const;

describe.each(PLACES)(
  'and where the call was the probe of a half-open breaker, on %s?',
  (place) => {
    it.each(table)('%s', async (_outcome, row) => {
      const bench = await setUp(place, row);
      const { app, payments, keys, order } = bench;
      if (row.sample !== 'refused') await app.store.set(keys.circuit, DUE, FOREVER);
      const result = await run(place, bench);

      expect(ended(result)).toBe(row.gets);
      const { state, next, told } = AFTER_A_PROBE[row.sample];
      expect(app.telemetry.names).toEqual(ofAProbe(row, told));
      expect(await tracesOf(app, keys)).toMatchObject({ circuit: state, quota: row.quota });

      payments.body = () => ({ receipt: 'rc_probe' });
      const other = orderOf(`probe-${tests}`, { bank: order.bank });
      expect(ended(await run(place, { ...bench, order: other }))).toBe(next);
    });
  },
);

/** The events of a row, and those of the breaker among them. */
function ofAProbe(
  { events, sample }: Row,
  told: TelemetryEventName | undefined,
): TelemetryEventName[] {
  const all = [...events];
  if (sample === 'none' || sample === 'refused') return all;
  all.splice(all.indexOf('rate_limit_admitted') + 1, 0, 'circuit_half_opened');
  // Rings are left in their order, the breaker before the claim.
  const stale = all.indexOf('idempotency_stale');
  if (told) all.splice(stale < 0 ? -1 : stale, 0, told);
  return all;
}

/** What the table calls what stands under a key. */
const LEAVES = {
  done: 'keep',
  tombstone: 'tombstone',
  free: 'drop',
  in_progress: 'abandon',
} as const;

describe('does the code say the same in its outcome table?', () => {
  it.each(table)('%s', (_outcome, { kind, sample, overruled, claim, quota, runs, throws }) => {
    const meant = OUTCOME_TABLE[kind];
    if (!overruled) {
      const told = sample === 'none' || sample === 'refused' ? 'ignored' : sample;
      expect(told).toBe(meant.sample);
    }
    if (claim !== 'unchanged') {
      expect(LEAVES[claim]).toBe(meant.claim);
    }
    expect(quota > 0).toBe(meant.quota === 'charged');
    if (throws) expect(runs > 1).toBe(meant.retry);
  });

  it('there is a test for each of its rows', () => {
    const provoked = new Set<string>([...ROWS.map(({ kind }) => kind), ...OF_HANDLERS]);
    expect(provoked).toEqual(new Set(Object.keys(OUTCOME_TABLE)));
  });
});

const RINGS = [
  { policy: 'rateLimit', part: 'payer', event: 'rate_limit_admitted' },
  { policy: 'circuitBreaker', part: 'bank', event: undefined },
  { policy: 'lock', part: 'account', event: 'lock_acquired' },
  { policy: 'idempotency', part: 'reference', event: 'idempotency_claimed' },
] as const;

const namesOf = (rings: readonly { readonly policy: string }[]): readonly string[] =>
  rings.map(({ policy }) => policy);

describe.each(PLACES)('which rings step aside for a blank key, on %s?', (place) => {
  it.each(subsetsOf(RINGS).map((blank) => ({ blank, names: namesOf(blank) })))(
    'exactly those: $names',
    async ({ blank, names }) => {
      const order = Object.fromEntries(blank.map(({ part }) => [part, '']));
      const bench = await setUp(place, { ...SUCCESS, order });
      const isBlank = (policy: string): boolean => names.includes(policy);
      const sent = proxy.commandsFromClient;
      expect(ended(await run(place, bench))).toBe('success');
      const commands = proxy.commandsFromClient - sent;

      expect(bench.app.telemetry.names).toEqual([
        'task_started',
        ...RINGS.flatMap(({ policy, event }) =>
          isBlank(policy) ? 'policy_bypassed' : (event ?? []),
        ),
        'task_executed',
      ]);
      const bypassed = bench.app.telemetry.of('policy_bypassed').map(({ payload }) => payload);
      expect(bypassed).toEqual(blank.map(({ policy }) => ({ policy, reason: 'blank' })));
      expect(await tracesOf(bench.app, bench.keys)).toMatchObject({
        quota: isBlank('rateLimit') ? 0 : 1,
        calls: isBlank('circuitBreaker') ? 0 : 1,
        lease: undefined,
        claim: isBlank('idempotency') ? undefined : 'done',
      });
      if (place !== 'Redis') return;
      // A rate limit alone has nothing to give back.
      const asking = RINGS.filter(({ policy }) => !isBlank(policy));
      const giving = asking.filter(({ policy }) => policy !== 'rateLimit');
      expect(commands).toBe(Math.min(1, asking.length) + Math.min(1, giving.length));
    },
  );
});

function subsetsOf<T>(items: readonly T[]): T[][] {
  return items.reduce<T[][]>(
    (subsets, item) => [...subsets, ...subsets.map((subset) => [...subset, item])],
    [[]],
  );
}

@Injectable()
class Feed {
  opened = 0;
  source: Observable<Receipt> = NEVER;

  @InputSchema(orderSchema)
  @RateLimit(input('payer'), { max: LIMIT, per: '1m' })
  @CircuitBreaker(input('bank'))
  @LockWith(input('account'), { wait: 60 })
  watch(_order: Order): Observable<Receipt> {
    this.opened += 1;
    return this.source;
  }
}

describe('and where the caller leaves a stream?', () => {
  const keys = keysOf(orderOf('ada'), 'Feed.watch');
  const bootFeed = async (): Promise<Application> => {
    const app = await bootRings([Feed], undefined);
    opened.push(app);
    return app;
  };
  const probe = async (app: Application) => app.store.set(keys.circuit, DUE, FOREVER);

  it('while it runs: no sample, the permit and the lease are given back, the quota is not', async () => {
    const app = await bootFeed();
    await probe(app);
    const subscription = app.get(Feed).watch(orderOf('ada')).subscribe();
    expect(await tracesOf(app, keys)).toMatchObject({ circuit: 'half_open', quota: 1 });
    expect(await app.store.get(keys.lock)).toBe(app.telemetry.events[0]?.tid);
    subscription.unsubscribe();
    expect(await tracesOf(app, keys)).toMatchObject({
      circuit: 'half_open',
      calls: 0,
      lease: undefined,
      quota: 1,
    });
    expect(OUTCOME_TABLE.unused).toMatchObject({ sample: 'ignored', quota: 'charged' });
    expect(app.telemetry.names).toEqual([
      ...ADMITTED,
      'circuit_half_opened',
      'lock_acquired',
      'task_executed',
    ]);
    // The permit is free: another one is let in.
    const next = app.get(Feed).watch(orderOf('ada')).subscribe();
    expect(app.get(Feed).opened).toBe(2);
    next.unsubscribe();
  });

  it('while it waits at the lock: the body never runs, and nothing is held', async () => {
    const app = await bootFeed();
    await probe(app);
    await app.store.set(keys.lock, 'somebody', FOREVER);
    const subscription = app.get(Feed).watch(orderOf('ada')).subscribe();
    await app.clock.advance('1s');
    subscription.unsubscribe();
    await app.clock.advance('1s');
    await until(() => app.telemetry.of('task_executed').length === 1, 'the end of the call');
    expect(app.get(Feed).opened).toBe(0);
    expect(await tracesOf(app, keys)).toMatchObject({
      circuit: 'half_open',
      lease: 'somebody',
      quota: 1,
    });
    await app.store.forget(keys.lock);
    const next = app.get(Feed).watch(orderOf('ada')).subscribe();
    expect(app.get(Feed).opened).toBe(1);
    next.unsubscribe();
  });
});
