import { afterAll, afterEach, beforeAll, describe, expect, it, jest } from '@jest/globals';
import {
  Controller,
  Get,
  Injectable,
  type ModuleMetadata,
  type Type,
  UseGuards,
} from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  arg,
  CircuitBreaker,
  claimText,
  CmdxModule,
  type CmdxModuleOptions,
  describePolicies,
  type InputInvalidError,
  LockWith,
  RateLimit,
  Store,
  Telemetry,
} from 'nestjs-cmdx';
import { ManualClock, RecordingTelemetry } from 'nestjs-cmdx/testing';
import { PgTransactions } from 'nestjs-cmdx/row-lock';
import { Pool } from 'pg';
import { lastValueFrom, type Observable, toArray } from 'rxjs';
import { stopDate } from '../support/dates.js';
import { README, snippets, writeSnippets } from '../support/readme.js';
import { borrowPostgres, type PostgresDatabases } from '../support/postgres-server.js';
import { borrowRedis } from '../support/redis-server.js';
import { passing, until } from '../support/time.js';
import { startUpstream, type UpstreamAnswer } from '../support/upstream.js';

const examples = snippets(README, 'ts');
const files = writeSnippets('readme', examples);

/** What a snippet exports: classes. */
type Exports = Readonly<Record<string, Type<Instance>>>;
type Instance = Readonly<Record<string, (...args: readonly unknown[]) => Promise<unknown>>>;

/** Snippets that are tests themselves: importing them registers them. */
const TESTS = ['Testing', 'Your own store'];
for (const heading of TESTS) await import(files.get(heading) ?? '');

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
});

async function boot(metadata: ModuleMetadata, options?: CmdxModuleOptions) {
  const telemetry = new RecordingTelemetry();
  const imports = options
    ? [CmdxModule.forRoot({ telemetry: [telemetry], ...options }), ...(metadata.imports ?? [])]
    : (metadata.imports ?? []);
  const module = await Test.createTestingModule({ ...metadata, imports }).compile();
  const app = module.createNestApplication({ logger: ['error'] });
  closers.push(() => app.close());
  return { app, telemetry };
}

async function serve(metadata: ModuleMetadata, options?: CmdxModuleOptions, filter?: Type) {
  const { app, telemetry } = await boot(metadata, options);
  if (filter) app.useGlobalFilters(new filter());
  await app.listen(0, '127.0.0.1');
  const url = await app.getUrl();
  const request = async (path: string, init?: RequestInit) => {
    const response = await fetch(url + path, init);
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  return { app, telemetry, request };
}

/** Makes the calls one after another. @returns how each ended: its value, its error's code or message */
async function inTurn(times: number, call: () => Promise<unknown>): Promise<readonly unknown[]> {
  const ends: unknown[] = [];
  for (let i = 0; i < times; i++) {
    ends.push(
      await call().catch((error: Error & { code?: unknown }) => error.code ?? error.message),
    );
  }
  return ends;
}

function json(body: object, headers: Record<string, string> = {}): RequestInit {
  return {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  };
}

@Controller('closed')
class Closed {
  @Get()
  @RateLimit({ max: 0, per: 1 })
  async read(): Promise<string> {
    return 'open';
  }
}

@Injectable()
class Room {
  @LockWith(arg(0))
  async enter(_name: string): Promise<string> {
    await new Promise(setImmediate);
    return 'in';
  }
}

@Injectable()
class SickRates {
  @CircuitBreaker('rates-api', { minimumCalls: 2 })
  async ask(): Promise<never> {
    throw new Error('sick');
  }
}

let databases: PostgresDatabases;
beforeAll(async () => {
  databases = await borrowPostgres();
}, 60_000);
afterAll(() => databases.stop());

/** A pool on a database with those tables. */
async function poolWith(tables: string, pool = new Pool()): Promise<Pool> {
  Object.assign(pool.options, { connectionString: await databases.createDatabase() });
  closers.push(() => pool.end());
  await pool.query(tables);
  return pool;
}

/** What each snippet claims, by its heading. */
const claims: Readonly<Record<string, (exports: Exports) => Promise<void>>> = {
  'One real example': async ({ AppModule }) => {
    const { request } = await serve({ imports: [AppModule as Type] });
    const settled = await request('/accounts/acct_1/reconcile', { method: 'POST' });
    expect(settled).toMatchObject({ status: 201, text: 'acct_1 is settled' });
    const book = () => request('/webhooks/payments', json({ id: 'evt_1', amount: 5 }));
    const receipt = await book();
    expect(JSON.parse(receipt.text)).toMatchObject({ eventId: 'evt_1', amount: 5 });
    expect((await book()).text).toBe(receipt.text);
    const forgot = json({ email: 'ada@example.com' });
    for (let i = 0; i < 5; i++)
      expect((await request('/auth/forgot-password', forgot)).status).toBe(201);
    expect((await request('/auth/forgot-password', forgot)).status).toBe(429);
  },

  '@WithRowLock': async ({ BillingModule, Invoices, pool: unconnected }) => {
    const pool = await poolWith(
      `CREATE TABLE invoices (id text PRIMARY KEY, amount int, status text);
       CREATE TABLE payments (invoice text, amount int);
       INSERT INTO invoices VALUES ('a', 5, 'new')`,
      unconnected as unknown as Pool,
    );
    const { app } = await boot({ imports: [BillingModule as Type] });
    const invoices = app.get(Invoices as Type<Instance>);
    const ends = await Promise.all(
      Array.from({ length: 5 }, () =>
        invoices['pay']?.('a').catch((error: Error) => error.message),
      ),
    );
    expect(ends.filter((end) => end === 5)).toHaveLength(1);
    expect(ends.filter((end) => end === 'This invoice is paid.')).toHaveLength(4);
    expect((await pool.query('SELECT * FROM payments')).rows).toEqual([
      { invoice: 'a', amount: 5 },
    ]);
    await expect(invoices['pay']?.('b')).rejects.toMatchObject({ code: 'row_missing' });
  },

  RowLocks: async ({ Transfers }) => {
    const pool = await poolWith(
      `CREATE TABLE accounts (id text PRIMARY KEY, balance int);
       INSERT INTO accounts VALUES ('a', 10), ('b', 10)`,
    );
    const rowLock = new PgTransactions({ pool });
    const { app } = await boot({ providers: [Transfers as Type] }, { rowLock });
    const transfers = app.get(Transfers as Type<Instance>);
    const moves = Array.from({ length: 10 }, (_, each) =>
      each % 2 === 0 ? transfers['move']?.('a', 'b', 3) : transfers['move']?.('b', 'a', 3),
    );
    const ends = await Promise.allSettled(moves);
    const { rows } = await pool.query<{ balance: number }>('SELECT * FROM accounts ORDER BY id');
    expect(rows.map(({ balance }) => balance).reduce((sum, each) => sum + each)).toBe(20);
    expect(
      ends.every((end) => end.status === 'fulfilled' || end.reason.message === 'not enough'),
    ).toBe(true);
    const emptied = transfers['move']?.('a', 'b', 21);
    await expect(emptied).rejects.toThrow('not enough');
  },

  'Payments by key': async ({ PaymentsController }) => {
    const { app } = await boot({ controllers: [PaymentsController as Type] }, {});
    // The user's own authentication.
    app.use(
      (
        request: { user?: object; headers: Record<string, string> },
        _: object,
        next: () => void,
      ) => {
        const id = request.headers['x-user'];
        if (id) request.user = { id };
        next();
      },
    );
    await app.listen(0, '127.0.0.1');
    const url = `${await app.getUrl()}/payments`;
    const pay = async (user: string, key: string, amount: number) => {
      const headers = { 'x-user': user, 'idempotency-key': key };
      const response = await fetch(url, json({ amount }, headers));
      const replayed = response.headers.get('idempotent-replayed');
      return { status: response.status, replayed, text: await response.text() };
    };
    const first = await pay('ada', 'k', 5);
    expect(first).toMatchObject({ status: 201, replayed: null });
    expect(await pay('ada', '"k"', 5)).toEqual({ ...first, replayed: 'true' });
    expect(await pay('ada', 'k', 6)).toMatchObject({ status: 422 });
    expect((await pay('bob', 'k', 5)).text).not.toBe(first.text);
    expect(await pay('ada', '', 5)).toMatchObject({ status: 400 });
    expect(await pay('', 'k', 5)).toMatchObject({ status: 400 });
  },

  'Lease and heartbeat': async ({ YearEnd }) => {
    const clock = new ManualClock();
    const { app } = await boot({ providers: [YearEnd as Type] }, { clock });
    await app.init();
    const yearEnd = app.get<
      Instance & { closed: string[]; closeOne: (account: string) => Promise<void> }
    >(YearEnd as Type);
    expect(await yearEnd['close']?.(2025, ['a', 'b'])).toBe(2);
    yearEnd.closed.length = 0;
    yearEnd.closeOne = async (account) => {
      yearEnd.closed.push(account);
      // It was silent for too long, and another process has taken over.
      const record = claimText({
        state: 'pending',
        run: 2,
        leaseUntil: clock.now() + 120_000,
        token: 'another',
        fingerprint: '',
        outcome: '',
      });
      await app.get(Store).set('cmdx:idem:YearEnd.close:2026', record, { ttl: '1h' });
      await clock.advance('40s');
    };
    await expect(yearEnd['close']?.(2026, ['a', 'b'])).rejects.toMatchObject({
      name: 'LeaseLostError',
    });
    expect(yearEnd.closed).toEqual(['a']);
  },

  'Looking and forgetting': async ({ Transfers, TransferDesk }) => {
    const { app } = await boot({ providers: [Transfers as Type, TransferDesk as Type] }, {});
    await app.init();
    const transfers = app.get<Instance>(Transfers as Type);
    const desk = app.get<Instance>(TransferDesk as Type);
    expect(await desk['allowAgain']?.('t1')).toBe('never begun');
    await transfers['send']?.('t1');
    expect(await desk['allowAgain']?.('t1')).toBe('done');
    const key = 'cmdx:idem:Transfers.send:t2';
    const record = {
      state: 'pending',
      run: 1,
      leaseUntil: 0,
      token: 'dead',
      fingerprint: '',
      outcome: '',
    } as const;
    await app.get(Store).set(key, claimText(record), { ttl: '1h' });
    await expect(transfers['send']?.('t2')).rejects.toMatchObject({
      code: 'abandoned',
      metadata: { idempotencyKey: key },
    });
    expect(await desk['allowAgain']?.('t2')).toBe('may be sent again');
    expect(await transfers['send']?.('t2')).toBe('t2 is sent');
  },

  Webhooks: async ({ PaymentEvents }) => {
    const { app } = await boot({ providers: [PaymentEvents as Type] }, {});
    await app.init();
    const events = app.get<Instance>(PaymentEvents as Type);
    const deliver = (id: string, amount: number) =>
      events['book']?.({ id, accountId: 'acct_42', amount });
    const balances = await Promise.all([deliver('a', 5), deliver('a', 5), deliver('b', 7)]);
    expect(balances[0]).toBe(balances[1]);
    expect(Math.max(...(balances as number[]))).toBe(12);
    expect(await deliver('a', 5)).toBe(balances[0]);
  },

  'Once a night': async ({ Nightly }) => {
    const { app } = await boot({ providers: [Nightly as Type] }, {});
    await app.init();
    const nightly = app.get<Instance & { nights: string[] }>(Nightly as Type);
    try {
      stopDate('2026-03-28T02:00:00Z');
      await Promise.all([nightly['run']?.(), nightly['run']?.()]);
      stopDate('2026-03-28T02:05:00Z');
      await nightly['run']?.();
      expect(nightly.nights).toEqual(['2026-03-28T02:00:00.000Z']);
      stopDate('2026-03-29T02:00:00Z');
      await nightly['run']?.();
      expect(nightly.nights).toHaveLength(2);
    } finally {
      jest.useRealTimers();
    }
  },

  '@CircuitBreaker': async ({ Rates }) => {
    const { app } = await boot({ providers: [Rates as Type] }, {});
    await app.init();
    const rates = app.get<Instance & { url: string }>(Rates as Type);
    const upstream = await startUpstream(() => ({ status: 404 }));
    closers.push(() => upstream.close());
    rates.url = upstream.url;
    const missing = await inTurn(10, async () => rates['of']?.('XXX'));
    expect(new Set(missing)).toEqual(new Set(['Not Found']));
    upstream.answer = () => ({ body: '1.1' });
    expect(await rates['of']?.('EUR')).toBe(1.1);
    upstream.answer = () => ({ status: 500 });
    const failed = await inTurn(4, async () => rates['of']?.('EUR'));
    expect(new Set(failed)).toEqual(new Set(['rates-api: 500']));
    await expect(rates['of']?.('EUR')).rejects.toMatchObject({ code: 'circuit_open' });
    expect(await rates['refresh']?.()).toBeUndefined();
    expect(upstream.requests).toHaveLength(15);
  },

  'Looking at a breaker': async ({ RatesDesk }) => {
    const clock = new ManualClock();
    const { app } = await boot({ providers: [RatesDesk as Type, SickRates] }, { clock });
    await app.init();
    const desk = app.get<Instance>(RatesDesk as Type);
    const ask = () => app.get(SickRates).ask();
    expect(await desk['state']?.()).toBe('closed, nothing counted');
    expect(await desk['startAnew']?.()).toBe(false);
    expect(await inTurn(1, ask)).toEqual(['sick']);
    expect(await desk['state']?.()).toBe('closed, 1 of 1');
    expect(await inTurn(2, ask)).toEqual(['sick', 'circuit_open']);
    expect(await desk['state']?.()).toBe('open for 30 s');
    await clock.advance('30s');
    expect(await desk['state']?.()).toBe('open for 0 s');

    await desk['insist']?.();
    expect(await inTurn(9, ask)).toEqual(Array.from({ length: 9 }, () => 'sick'));
    expect(await desk['state']?.()).toBe('forced_closed, 0 of 0');
    await desk['announced']?.(2);
    expect(await desk['state']?.()).toBe('forced_open, 0 of 0');
    await expect(ask()).rejects.toMatchObject({ code: 'circuit_open', retryAfter: undefined });
    await clock.advance('2h');
    expect(await desk['state']?.()).toBe('closed, nothing counted');
    await desk['announced']?.(2);
    expect(await desk['startAnew']?.()).toBe(true);
    expect(await inTurn(1, ask)).toEqual(['sick']);
  },

  '@RetryOn': async ({ Suppliers }) => {
    const clock = new ManualClock();
    const { app, telemetry } = await boot({ providers: [Suppliers as Type] }, { clock });
    await app.init();
    const suppliers = app.get<Instance & { url: string }>(Suppliers as Type);
    const upstream = await startUpstream(() => ({ body: '[1]' }));
    closers.push(() => upstream.close());
    suppliers.url = upstream.url;
    const prices = async (...answers: readonly UpstreamAnswer[]) => {
      const left = [...answers];
      upstream.answer = () => left.shift() ?? { body: '[1]' };
      telemetry.clear();
      const [end] = await passing(
        clock,
        inTurn(1, async () => suppliers['prices']?.()),
      );
      return [end, telemetry.of('task_retried').map(({ payload }) => payload.delay)];
    };
    const down = { status: 503 };
    expect(await prices(down, down)).toEqual([[1], [0.2, 0.4]]);
    expect(await prices(down, down, down, down)).toEqual([
      'The supplier answered 503.',
      [0.2, 0.4, 0.8],
    ]);
    expect(await prices({ status: 401 })).toEqual(['The supplier answered 401.', []]);
    const later = (seconds: number) => ({ status: 429, headers: { 'retry-after': `${seconds}` } });
    expect(await prices(later(3))).toEqual([[1], [3]]);
    expect(await prices(later(6))).toEqual(['The supplier answered 429.', []]);
  },

  Jitters: async ({ Feeds, FeedsModule }) => {
    const { app } = await boot({ imports: [FeedsModule as Type] });
    await app.init();
    const delays: number[] = [];
    app.get(Telemetry).subscribe('task_retried', ({ payload }) => delays.push(payload.delay));
    const feeds = app.get<Instance & { attempts: number }>(Feeds as Type);
    await expect(feeds['slow']?.()).rejects.toThrow();
    expect(delays.splice(0)).toEqual([0.03, 0.045]);
    await expect(feeds['spread']?.()).rejects.toThrow();
    const [first = 0, second = 0] = delays;
    expect([first >= 0.01, first <= 0.02]).toEqual([true, true]);
    expect([second >= 0.02, second <= 0.04]).toEqual([true, true]);
    expect(feeds.attempts).toBe(6);
  },

  '@InputSchema and @OutputSchema': async ({ Orders }) => {
    const { app, telemetry } = await boot({ providers: [Orders as Type] }, {});
    await app.init();
    const orders = app.get<Instance>(Orders as Type);
    expect(await orders['place']?.({ customerId: ' ADA ', quantity: 2 })).toEqual({
      customerId: 'ada',
      total: 19,
    });
    const [{ payload } = { payload: undefined }] = telemetry.of('lock_acquired');
    expect(payload?.lockKey).toBe('cmdx:lock:Orders.place:ada');
    const wrong = await orders['place']?.({ quantity: 0 }).catch((error: unknown) => error);
    expect(wrong).toMatchObject({ code: 'input_invalid', status: 400 });
    expect((wrong as InputInvalidError).getResponse()).toMatchObject({
      message: [expect.stringMatching(/^customerId: \w+/), expect.stringMatching(/^quantity: \w+/)],
    });
    expect(telemetry.of('lock_acquired')).toHaveLength(1);
  },

  Keys: async ({ Invoices, PlanOf }) => {
    const { app, telemetry } = await boot({ providers: [Invoices as Type, PlanOf as Type] }, {});
    await app.init();
    const invoices = app.get<Instance>(Invoices as Type);
    await invoices['send']?.('tenant:1', { id: 7 });
    await invoices['close']?.('acme', 2026, 'ada');
    await invoices['preview']?.('acme');
    await invoices['search']?.('text');
    const keys = telemetry.of('lock_acquired').map(({ payload }) => payload.lockKey);
    expect(keys).toEqual([
      'cmdx:lock:Invoices.send:tenant%3A1:7',
      'cmdx:lock:Invoices.close:acme-2026',
    ]);
    const [admitted] = telemetry.of('rate_limit_admitted');
    expect(admitted?.payload.rateLimitKey).toBe('cmdx:rl:Invoices.preview:plan-of-acme');
    expect(telemetry.of('policy_bypassed')).toHaveLength(1);
  },

  Gates: async ({ Search }) => {
    const { app } = await boot({ providers: [Search as Type] }, {});
    await app.init();
    const search = app.get<Instance>(Search as Type);
    const find = (customer: string) => inTurn(11, async () => search['find']?.(customer));
    expect((await find('basic_1')).at(-1)).toBe('rate_limited');
    expect((await find('pro_1')).at(-1)).toEqual([]);
  },

  'What the caller gets': async ({ Payouts, PayoutRun }) => {
    const { app } = await boot({ providers: [Payouts as Type, PayoutRun as Type] }, {});
    app.useLogger(false);
    await app.init();
    const payouts = app.get<Instance>(Payouts as Type);
    expect(await payouts['pay']?.('acme', 0)).toBeUndefined();
    await expect(payouts['pay']?.('acme', -1)).rejects.toMatchObject({
      status: 422,
      code: 'negative_balance',
      reason: 'the balance is negative',
    });
    const owed = new Map([
      ['acme', 10],
      ['owls', 0],
      ['debt', -1],
    ]);
    expect(await app.get<Instance>(PayoutRun as Type)['payAll']?.(owed)).toBe(1);
  },

  'Errors and statuses': async ({ QuietRefusals }) => {
    const { request } = await serve({ controllers: [Closed] }, {}, QuietRefusals as Type);
    const answer = await request('/closed');
    expect(answer).toMatchObject({ status: 429, text: '{"problem":"rate_limited"}' });
    expect(answer.headers.get('retry-after')).toBeNull();
  },

  Observables: async ({ Exports: ExportsClass }) => {
    const { app } = await boot({ providers: [ExportsClass as Type] }, {});
    await app.init();
    const rows = (table: string) =>
      app.get<{ rows(table: string): Observable<string> }>(ExportsClass as Type).rows(table);
    expect(await lastValueFrom(rows('users').pipe(toArray()))).toEqual(['users 1', 'users 2']);
    const nested: unknown[] = [];
    rows('users').subscribe(() => rows('users').subscribe({ error: (e) => nested.push(e.code) }));
    await until(() => nested.length > 0, 'the refusal');
    expect(nested[0]).toBe('busy');
  },

  'Classes and inheritance': async ({ Reports, Job, PatientJob, Rehearsal }) => {
    const { app, request, telemetry } = await serve(
      { controllers: [Reports as Type], providers: [PatientJob as Type, Rehearsal as Type] },
      {},
    );
    const list = await Promise.all(Array.from({ length: 101 }, () => request('/reports')));
    expect(list.filter(({ status }) => status === 429)).toHaveLength(1);
    expect((await request('/reports/health')).status).toBe(200);

    expect(describePolicies(Job as Type, 'run').policies[0]?.options).toMatchObject({ wait: 0 });
    expect(describePolicies(PatientJob as Type, 'run').policies[0]).toMatchObject({
      key: 'arg(0)',
      options: { ttl: '10m', wait: '1m' },
    });
    await app.get<Instance>(PatientJob as Type)['run']?.('acme');
    await app.get<Instance>(Rehearsal as Type)['run']?.('acme');
    const keys = telemetry.of('lock_acquired').map(({ payload }) => payload.lockKey);
    expect(keys).toEqual(['cmdx:lock:PatientJob.run:acme']);
  },

  Module: async ({ AppModule }) => {
    const server = await borrowRedis();
    closers.unshift(() => server.stop());
    const before = process.env['REDIS_URL'];
    process.env['REDIS_URL'] = server.url;
    const { app } = await boot({ imports: [AppModule as Type], providers: [Room] });
    if (before === undefined) delete process.env['REDIS_URL'];
    else process.env['REDIS_URL'] = before;
    app.useLogger(false);
    await app.init();
    const name = `readme-${process.pid}-${performance.now()}`;
    const entered = app.get(Room).enter(name);
    await expect(app.get(Room).enter(name)).rejects.toMatchObject({ code: 'busy' });
    expect(await entered).toBe('in');
    await app.get(Store).set(name, 'x', { ttl: 1 });
    expect(app.get(Store).constructor.name).toBe('RedisStore');
  },

  Shutdown: async ({ Importer }) => {
    const { app } = await boot({ providers: [Importer as Type] }, { shutdownTimeout: '50ms' });
    await app.init();
    const running = app.get<Instance>(Importer as Type)['run']?.(1_000);
    await app.close();
    expect(await running).toBeLessThan(100);
  },

  Telemetry: async ({ Contention }) => {
    const { app } = await boot({ providers: [Contention as Type, Room] }, {});
    await app.init();
    const room = app.get(Room);
    await Promise.allSettled([room.enter('a'), room.enter('a'), room.enter('a')]);
    const contention = app.get<{ byTask: ReadonlyMap<string, number> }>(Contention as Type);
    expect([...contention.byTask]).toEqual([['Room.enter', 2]]);
  },

  'In front of authentication': async ({ Passwords, PasswordGuard }) => {
    @Controller()
    @UseGuards(PasswordGuard as Type)
    class Secret {
      @Get()
      read(): string {
        return 'the secret';
      }
    }
    const { request } = await serve({ controllers: [Secret], providers: [Passwords as Type] }, {});
    const statuses = await inTurn(5, async () => (await request('/')).status);
    expect(statuses).toEqual([403, 403, 403, 403, 403]);
    const refused = await request('/', { headers: { 'x-password': 'open sesame' } });
    expect(refused).toMatchObject({ status: 429 });
    expect(refused.headers.get('retry-after')).toBe('60');
  },

  'Custom limiters': async ({ Newsletter, NewsletterModule }) => {
    const { app } = await boot({ imports: [NewsletterModule as Type] });
    await app.init();
    const newsletter = app.get<Instance>(Newsletter as Type);
    const allowed = new Date().getHours() < 6 ? 30 : 3;
    const ends = await inTurn(allowed + 1, async () => newsletter['send']?.('ada@example.com'));
    expect(ends).toEqual([...Array<undefined>(allowed).fill(undefined), 'rate_limited']);
    await expect(newsletter['sendToAll']?.()).rejects.toMatchObject({ code: 'rate_limited' });
    expect(await newsletter['preview']?.()).toBeUndefined();
  },
};

describe('does README.md hold what it says?', () => {
  it('is every snippet run?', () => {
    const headings = examples.map(({ heading }) => heading);
    expect([...Object.keys(claims), ...TESTS].toSorted()).toEqual(headings.toSorted());
  });

  it.each(Object.keys(claims))('does the example under "%s" do what it says?', async (heading) => {
    await claims[heading]?.((await import(files.get(heading) ?? '')) as Exports);
  });
});
