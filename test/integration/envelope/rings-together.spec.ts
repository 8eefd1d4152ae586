import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  CircuitBreaker,
  claimText,
  currentInvocation,
  describePolicies,
  IdempotentBy,
  input,
  InputSchema,
  LockWith,
  OutputSchema,
  RateLimit,
  RetryOn,
  type Schema,
  Store,
} from 'nestjs-cmdx';
import * as z from 'zod';
import {
  bootRings,
  drive,
  keysOf,
  LIMIT,
  type Order,
  orderOf,
  orderSchema,
  PROBED,
  type Receipt,
  receiptSchema,
  tracesOf,
} from '../../support/all-rings.js';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { decorateMethod, named, permutations } from '../../support/http-decorate.js';
import { OverheardStore } from '../../support/overheard-store.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';

closeApplicationsAfterEach();

let redis: RedisServer;
let proxy: TcpProxy;

beforeAll(async () => {
  redis = await startRedis();
  proxy = await TcpProxy.start(redis.port);
});

afterAll(async () => {
  await proxy.stop();
  await redis.stop();
});

const IN = 'fixed_window+circuit+lease+claim';
const FULL_RUN = [
  'task_started',
  'rate_limit_admitted',
  'lock_acquired',
  'idempotency_claimed',
] as const;

/** Tells the store's state at each moment of a run. */
let look: () => Promise<void> = async () => undefined;

/** A schema of one's own, that takes its time. */
const refuseSlowly: Schema = {
  '~standard': {
    version: 1,
    vendor: 'test',
    async validate() {
      await look();
      return { issues: [{ message: 'never good enough' }] };
    },
  },
};

class Flaky extends Error {}

@Injectable()
class Transfers {
  runs = 0;
  failures = 3;

  constructor(readonly store: Store) {}

  @InputSchema(orderSchema)
  @RateLimit(input('payer'), { max: LIMIT, per: '1m' })
  @CircuitBreaker(input('bank'))
  @LockWith(input('account'), { ttl: '2h' })
  @IdempotentBy(input('reference'))
  @RetryOn(Flaky, { limit: 3, delay: '20ms' })
  @OutputSchema(refuseSlowly)
  async refused(_order: Order): Promise<Receipt> {
    return this.#transfer();
  }

  @InputSchema(orderSchema)
  @RateLimit(input('payer'), { max: LIMIT, per: '1m' })
  @CircuitBreaker(input('bank'))
  @LockWith(input('account'))
  @IdempotentBy(input('reference'))
  @RetryOn(Flaky, { limit: 3, delay: '20ms' })
  @OutputSchema(receiptSchema)
  async accepted(_order: Order): Promise<Receipt> {
    return this.#transfer();
  }

  async #transfer(): Promise<Receipt> {
    this.runs += 1;
    await look();
    if (this.runs <= this.failures) throw new Flaky();
    return { receipt: 'rc_1' };
  }
}

describe.each(['memory', 'Redis'])('all rings together, on %s', (place) => {
  const url = (): string | undefined => (place === 'Redis' ? proxy.url : undefined);

  it('lease, claim and admission are had once, over four attempts and an output check that fails', async () => {
    const app = await bootRings([Transfers], url());
    const order = orderOf(`once-${place}`);
    const keys = keysOf(order, 'Transfers.refused');
    const seen: unknown[] = [];
    const lives: number[] = [];
    look = async () => {
      const { quota, lease, claim, claimedBy, calls } = await tracesOf(app, keys);
      seen.push({ quota, lease, claim, claimedBy, calls });
      lives.push((await app.store.remainingTtl(keys.lock)) ?? 0);
    };
    const call = app.cmdx.execute(() => app.get(Transfers).refused(order));
    const result = await (place === 'Redis' ? call : drive(app.clock, call));

    expect(result).toMatchObject({ metadata: { code: 'output_invalid' }, retries: 3 });
    const { tid } = result;
    const held = { quota: 1, lease: tid, claim: 'in_progress', claimedBy: tid, calls: 0 };
    expect(seen).toEqual(Array.from({ length: 5 }, () => held));
    // Taken once, and never anew: it only runs down, 60 ms at least over three sleeps.
    expect(lives).toEqual(lives.toSorted((left, right) => right - left));
    expect((lives[0] as number) - (lives[4] as number)).toBeGreaterThanOrEqual(0.05);
    expect(await tracesOf(app, keys)).toMatchObject({
      quota: 1,
      calls: 0,
      lease: undefined,
      claim: 'tombstone',
      claimedBy: tid,
    });
    expect(app.telemetry.names).toEqual([
      ...FULL_RUN,
      'task_retried',
      'task_retried',
      'task_retried',
      'task_executed',
    ]);
  });

  it('everything of a run is told in the order of the rings, by one tid', async () => {
    const app = await bootRings([Transfers], url());
    const transfers = app.get(Transfers);
    transfers.failures = 1;
    const order = orderOf(`order-${place}`);
    const keys = keysOf(order, 'Transfers.accepted');
    look = async () => undefined;
    const call = app.cmdx.execute(() => transfers.accepted(order));
    const result = await (place === 'Redis' ? call : drive(app.clock, call));

    const { events } = app.telemetry;
    expect(events.map(({ name, payload }) => [name, payload])).toEqual([
      ['task_started', {}],
      [
        'rate_limit_admitted',
        expect.objectContaining({ rateLimitKey: keys.rateLimit, count: 1, max: LIMIT }),
      ],
      ['lock_acquired', { lockKey: keys.lock }],
      ['idempotency_claimed', { idempotencyKey: keys.claim, run: 1 }],
      ['task_retried', { attempt: 1, delay: 0.02, error: expect.any(Flaky) }],
      ['task_executed', { result }],
    ]);
    for (const event of events) {
      expect(event).toMatchObject({
        task: 'Transfers.accepted',
        tid: result.tid,
        cid: result.cid,
        root: true,
      });
    }
  });
});

it('each attempt on Redis costs it nothing: two commands for four attempts', async () => {
  const app = await bootRings([Transfers], proxy.url);
  const transfers = app.get(Transfers);
  look = async () => undefined;
  await transfers.accepted(orderOf('warm-up'));
  transfers.runs = 0;
  const sent = proxy.commandsFromClient;
  await transfers.accepted(orderOf('four-attempts'));
  expect(transfers.runs).toBe(4);
  expect(proxy.commandsFromClient - sent).toBe(2);
});

it('a hundred calls at once are two commands each, and each has what is its own', async () => {
  const app = await bootRings([Transfers], proxy.url);
  const transfers = app.get(Transfers);
  transfers.failures = 0;
  look = async () => undefined;
  await transfers.accepted(orderOf('warm-too'));
  const sent = proxy.commandsFromClient;
  const orders = Array.from({ length: 100 }, (_, index) => orderOf(`crowd-${index}`));
  await Promise.all(orders.map((order) => transfers.accepted(order)));
  expect(proxy.commandsFromClient - sent).toBe(200);
  expect(app.telemetry.of('idempotency_claimed')).toHaveLength(101);
  expect(await tracesOf(app, keysOf(orderOf('crowd-99'), 'Transfers.accepted'))).toMatchObject({
    quota: 1,
    calls: 1,
    failures: 0,
    lease: undefined,
    claim: 'done',
  });
});

const lowerCase = z.object({
  payer: z.string().toLowerCase(),
  bank: z.string().toLowerCase(),
  account: z.string().toLowerCase(),
  reference: z.string().toLowerCase(),
});
const RINGS = [
  RateLimit(input('payer'), { max: LIMIT, per: '1m' }),
  CircuitBreaker(input('bank')),
  LockWith(input('account')),
  IdempotentBy(input('reference')),
];
const REST = [
  InputSchema(lowerCase),
  RetryOn(Flaky, { limit: 1, delay: 0 }),
  OutputSchema(receiptSchema),
];

interface Shop {
  runs: number;
  seen: unknown;
  buy(order: Omit<Order, 'amount'>): Promise<Receipt>;
}

/** One class for each order of the rings, and the rest strewn among them in all of its orders. */
const shops = permutations(RINGS).map((rings, index) => {
  const rests = permutations(REST);
  const rest = rests[index % rests.length] as unknown[];
  const decorators: unknown[] = [...rings];
  for (const [at, decorator] of rest.entries()) {
    decorators.splice((index * (at + 2)) % (decorators.length + 1), 0, decorator);
  }
  const shop = named(
    `Shop${index}`,
    class implements Shop {
      runs = 0;
      seen: unknown;
      async buy(order: Omit<Order, 'amount'>): Promise<Receipt> {
        this.runs += 1;
        this.seen = order;
        if (this.runs === 1) throw new Flaky();
        return { receipt: 'rc_1', internal: true } as Receipt;
      }
    },
  );
  decorateMethod(shop.prototype, 'buy', decorators);
  Injectable()(shop);
  return shop;
});

describe('does the order of the decorators matter?', () => {
  const asked = { payer: 'ADA', bank: 'ACME', account: 'A1', reference: 'R1' };
  const lower = { payer: 'ada', bank: 'acme', account: 'a1', reference: 'r1', amount: 0 };

  it('there is one class for each order of the rings', () => {
    expect(shops).toHaveLength(24);
  });

  it('no: the order of the rings, of the trips and of the events is always the same', async () => {
    const store = new OverheardStore();
    const app = await boot({ providers: shops }, { store });
    for (const shop of shops) {
      const task = `${shop.name}.buy`;
      app.telemetry.clear();
      store.asked.length = 0;
      const instance = app.get(shop);
      const receipt = await drive(app.clock, instance.buy(asked));

      expect({ task, receipt, runs: instance.runs, seen: instance.seen }).toEqual({
        task,
        receipt: { receipt: 'rc_1' },
        runs: 2,
        seen: { payer: 'ada', bank: 'acme', account: 'a1', reference: 'r1' },
      });
      expect(store.asked).toEqual([IN, 'outcome+release+complete']);
      expect(app.telemetry.names).toEqual([...FULL_RUN, 'task_retried', 'task_executed']);
      expect(await tracesOf(app, keysOf(lower, task))).toMatchObject({
        quota: 1,
        calls: 1,
        failures: 0,
        lease: undefined,
        claim: 'done',
      });
      expect(describePolicies(shop, 'buy')).toMatchObject({
        policies: ['rateLimit', 'circuitBreaker', 'lock', 'idempotency'].map((policy) => ({
          policy,
        })),
        batches: [['rateLimit', 'circuitBreaker', 'lock', 'idempotency']],
        checksInput: true,
        checksOutput: true,
        retry: { limit: 1 },
      });
    }
  });

  it('no: of several that would refuse it is always the outermost that does', async () => {
    const app = await boot({ providers: shops });
    const FOREVER = { ttl: '1h' } as const;
    const theirs = claimText({
      state: 'pending',
      run: 1,
      leaseUntil: Number.MAX_SAFE_INTEGER,
      token: 'somebody',
      fingerprint: '',
      outcome: '',
    });
    for (const shop of shops) {
      const keys = keysOf(lower, `${shop.name}.buy`);
      await app.store.incr(keys.rateLimit, { by: LIMIT, ...FOREVER });
      await app.store.set(keys.circuit, PROBED, FOREVER);
      await app.store.set(keys.lock, 'somebody', FOREVER);
      await app.store.set(keys.claim, theirs, FOREVER);
      const refusals: unknown[] = [];
      for (const key of [keys.rateLimit, keys.circuit, keys.lock, keys.claim]) {
        const error = await app
          .get(shop)
          .buy(asked)
          .catch((thrown: unknown) => thrown);
        refusals.push((error as { readonly code?: unknown }).code);
        await app.store.forget(key);
      }
      // An input that does not fit goes before all of them.
      const error = await app
        .get(shop)
        .buy({ ...asked, payer: 1 as never })
        .catch((thrown: unknown) => thrown);
      expect([shop.name, (error as { readonly code?: unknown }).code, ...refusals]).toEqual([
        shop.name,
        'input_invalid',
        'rate_limited',
        'circuit_open',
        'busy',
        'in_progress',
      ]);
      expect(app.get(shop).runs).toBe(0);
    }
  });

  it('nor does it whether a ring is written on the class or on the method', async () => {
    @RateLimit(input('payer'), { max: LIMIT, per: '1m' })
    @RetryOn(Flaky, { limit: 1, delay: 0 })
    @IdempotentBy(input('reference'))
    @Injectable()
    class Desk {
      runs = 0;

      @OutputSchema(receiptSchema)
      @IdempotentBy()
      @LockWith(input('account'))
      @RetryOn()
      @CircuitBreaker(input('bank'))
      @InputSchema(orderSchema)
      @RateLimit()
      async pay(_order: Order): Promise<Receipt> {
        this.runs += 1;
        expect(currentInvocation()?.lock).toEqual({ key: 'cmdx:lock:Desk.pay:ada' });
        if (this.runs === 1) throw new Flaky();
        return { receipt: 'rc_1' };
      }
    }
    const store = new OverheardStore();
    const app = await boot({ providers: [Desk] }, { store });
    await drive(app.clock, app.get(Desk).pay(orderOf('ada')));
    expect(store.asked).toEqual([IN, 'outcome+release+complete']);
    expect(app.telemetry.names).toEqual([...FULL_RUN, 'task_retried', 'task_executed']);
  });
});
