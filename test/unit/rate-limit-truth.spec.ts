import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import * as fc from 'fast-check';
import {
  arg,
  Deadline,
  type EnterReply,
  MemoryStore,
  RateLimit,
  RateLimitedError,
  type RateLimitedMetadata,
  type Store,
} from 'nestjs-cmdx';
import { type RateLimitSettings, RateLimitPolicy } from '../../lib/policies/rate-limit.js';
import { boot, closeApplicationsAfterEach } from '../support/application.js';

/** What the limiter has to answer, in exact integers: microseconds of drain, milliseconds of time. */
interface Model {
  /** @returns undefined when it admits, otherwise the milliseconds until it would */
  start(nowMs: number): number | undefined;
}

class WindowModel implements Model {
  count = 0;
  #endsAt = 0;

  constructor(
    private readonly max: number,
    private readonly perMs: number,
  ) {}

  start(nowMs: number): number | undefined {
    if (nowMs >= this.#endsAt) {
      this.#endsAt = nowMs + this.perMs;
      this.count = 0;
    }
    this.count += 1;
    return this.count <= this.max ? undefined : this.#endsAt - nowMs;
  }
}

class BucketModel implements Model {
  /** What the last start brought the level to, or would have. */
  projectedUs = 0n;
  #levelUs = 0n;
  #lastMs = 0;

  constructor(
    private readonly capacityUs: bigint,
    private readonly costUs: bigint,
  ) {}

  start(nowMs: number): number | undefined {
    const passed = BigInt(nowMs - this.#lastMs) * 1_000n;
    const drained = this.#levelUs > passed ? this.#levelUs - passed : 0n;
    this.projectedUs = drained + this.costUs;
    const over = this.projectedUs - this.capacityUs;
    if (over > 0n) return Number((over + 999n) / 1_000n);
    this.#levelUs = this.projectedUs;
    this.#lastMs = nowMs;
    return undefined;
  }
}

/** Asks the store as the policy does, on a clock of its own. */
class Turnstile {
  nowMs = 1_000_000;
  readonly #store: Store = new MemoryStore();
  readonly #policy: RateLimitPolicy;

  constructor(limiter: 'fixed_window' | 'leaky_bucket', settings: Partial<RateLimitSettings>) {
    const whole = { max: 1, perMs: 1, cost: 1, onLimit: 'fail', onStoreError: 'fail' } as const;
    this.#policy = new RateLimitPolicy(limiter, { ...whole, ...settings });
    this.#store.useClock({ now: () => this.nowMs, sleep: async () => {}, every: () => () => {} });
  }

  /** @returns undefined when admitted, otherwise the refusal's facts */
  start() {
    const [reply] = this.#store.enter([this.#policy.request('key')], Deadline.after(60_000)) as [
      Extract<EnterReply, { kind: 'fixed_window' | 'leaky_bucket' }>,
    ];
    if (reply.admitted) return undefined;
    return this.#policy.refusal('key', reply).metadata as RateLimitedMetadata;
  }
}

const pauses = fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 3_000 })), {
  minLength: 1,
  maxLength: 60,
});

describe('is retryAfter true to the millisecond?', () => {
  it('fixed_window: denied 1 ms before, admitted at it; the model counts alike', () => {
    const settings = fc.record({
      max: fc.integer({ min: 1, max: 6 }),
      perMs: fc.integer({ min: 1, max: 4_000 }),
    });
    fc.assert(
      fc.property(settings, pauses, ({ max, perMs }, schedule) => {
        const turnstile = new Turnstile('fixed_window', { max, perMs });
        const model = new WindowModel(max, perMs);
        for (const pause of schedule) {
          turnstile.nowMs += pause;
          const expected = model.start(turnstile.nowMs);
          const denied = turnstile.start();
          expect(denied?.retryAfter).toBe(expected === undefined ? undefined : expected / 1_000);
          if (!denied) continue;
          expect(denied.count).toBe(model.count);
          assertTrue(turnstile, model, denied.retryAfter);
        }
      }),
      { numRuns: 400 },
    );
  });

  it('leaky_bucket: with fractions of per and cost; the model fills alike', () => {
    const settings = fc.record({
      max: fc.integer({ min: 1, max: 5 }),
      perMs: fc.integer({ min: 30, max: 900 }),
      costHundredths: fc.integer({ min: 1, max: 500 }),
    });
    fc.assert(
      fc.property(settings, pauses, ({ max, perMs, costHundredths }, schedule) => {
        fc.pre(costHundredths <= max * 100);
        const cost = costHundredths / 100;
        const turnstile = new Turnstile('leaky_bucket', { max, perMs, cost });
        const model = new BucketModel(
          BigInt(max * perMs * 1_000),
          BigInt(costHundredths * perMs * 10),
        );
        for (const pause of schedule) {
          turnstile.nowMs += pause;
          const expected = model.start(turnstile.nowMs);
          const denied = turnstile.start();
          expect(denied?.retryAfter).toBe(expected === undefined ? undefined : expected / 1_000);
          if (!denied) continue;
          expect(denied.level).toBe(Number(model.projectedUs) / (perMs * 1_000));
          assertTrue(turnstile, model, denied.retryAfter);
        }
      }),
      { numRuns: 400 },
    );
  });

  it('a bucket takes as many starts at once as its capacity has room for, whatever the cost', () => {
    for (let costTenths = 1; costTenths <= 40; costTenths++) {
      for (const perMs of [30, 70, 290, 333, 900, 60_000]) {
        const turnstile = new Turnstile('leaky_bucket', { max: 7, perMs, cost: costTenths / 10 });
        let admitted = 0;
        while (admitted <= 70 && !turnstile.start()) admitted += 1;
        expect([costTenths, perMs, admitted]).toEqual([
          costTenths,
          perMs,
          Math.floor(70 / costTenths),
        ]);
      }
    }
  });

  it('max: 0 denies everything, for ever, and names no time', () => {
    for (const limiter of ['fixed_window', 'leaky_bucket'] as const) {
      const turnstile = new Turnstile(limiter, { max: 0, perMs: 500 });
      for (let start = 1; start <= 5; start++) {
        const denied = turnstile.start();
        expect(denied).toMatchObject({ code: 'rate_limited', max: 0, per: 0.5 });
        expect(denied).not.toHaveProperty('retryAfter');
        turnstile.nowMs += 300;
      }
    }
  });
});

/** A lone caller who waits exactly so long is admitted; 1 ms earlier he is not. */
function assertTrue(turnstile: Turnstile, model: Model, retryAfter: number | undefined): void {
  const waitMs = Math.round((retryAfter as number) * 1_000);
  expect(waitMs / 1_000).toBe(retryAfter);
  turnstile.nowMs += waitMs - 1;
  expect(model.start(turnstile.nowMs)).toBe(1);
  expect(turnstile.start()?.retryAfter).toBe(0.001);
  turnstile.nowMs += 1;
  expect(model.start(turnstile.nowMs)).toBeUndefined();
  expect(turnstile.start()).toBeUndefined();
}

@Injectable()
class Auth {
  ran = 0;

  @RateLimit(arg(0), { max: 3, per: '1.5s' })
  async forgot(_email: string): Promise<void> {
    this.ran += 1;
  }

  @RateLimit(arg(0), { max: 2, per: 0.09, limiter: 'leaky_bucket', cost: 0.7 })
  async signIn(_email: string): Promise<void> {
    this.ran += 1;
  }

  @RateLimit({ max: 0, per: 60 })
  async closed(): Promise<void> {
    this.ran += 1;
  }

  @RateLimit({ max: 5, per: 60 })
  async popular(): Promise<void> {
    this.ran += 1;
  }

  @RateLimit({ max: 5, per: 60, limiter: 'leaky_bucket' })
  async smooth(): Promise<void> {
    this.ran += 1;
  }
}

describe('is it true for the callers of a guarded method?', () => {
  closeApplicationsAfterEach();

  it.each([
    ['forgot', 500],
    ['signIn', 60],
  ] as const)('%s, on random schedules', async (method, longestPauseMs) => {
    const random = mulberry32(7);
    const { clock, get } = await boot({ providers: [Auth] });
    const auth = get(Auth);
    let denials = 0;
    for (let call = 0; call < 150; call++) {
      await clock.advance(`${Math.floor(random() * longestPauseMs)}ms`);
      const denied = await refusalOf(auth[method]('a@b.c'));
      if (!denied) continue;
      denials += 1;
      const waitMs = Math.round((denied.retryAfter as number) * 1_000);
      await clock.advance(`${waitMs - 1}ms`);
      expect(await refusalOf(auth[method]('a@b.c'))).toMatchObject({ retryAfter: 0.001 });
      await clock.advance('1ms');
      expect(await refusalOf(auth[method]('a@b.c'))).toBeUndefined();
    }
    expect(denials).toBeGreaterThan(10);
  });

  it('the window starts at the first hit and is never extended, and denied starts count', async () => {
    const { clock, get, telemetry } = await boot({ providers: [Auth] });
    const auth = get(Auth);
    await clock.advance('1s');
    await auth.forgot('a@b.c');
    await clock.advance('1400ms');
    await auth.forgot('a@b.c');
    await auth.forgot('a@b.c');
    for (const [count, retryAfter] of [
      [4, 0.1],
      [5, 0.06],
      [6, 0.02],
    ] as const) {
      expect((await refusalOf(auth.forgot('a@b.c')))?.metadata).toEqual({
        code: 'rate_limited',
        rateLimitKey: 'cmdx:rl:Auth.forgot:a@b.c',
        limiter: 'fixed_window',
        onLimit: 'fail',
        max: 3,
        per: 1.5,
        count,
        retryAfter,
      });
      await clock.advance('40ms');
    }
    expect(clock.now()).toBe(2_520);
    await auth.forgot('a@b.c');
    expect(telemetry.of('rate_limit_admitted').at(-1)?.payload).toEqual({
      rateLimitKey: 'cmdx:rl:Auth.forgot:a@b.c',
      limiter: 'fixed_window',
      max: 3,
      per: 1.5,
      count: 1,
    });
    // Somebody else has a window of his own.
    await auth.forgot('other@b.c');
    expect(auth.ran).toBe(5);
  });

  it('a denied start leaves a bucket as it was, and says how full it would have been', async () => {
    const { get, store } = await boot({ providers: [Auth] });
    const auth = get(Auth);
    await auth.signIn('a@b.c');
    await auth.signIn('a@b.c');
    for (let attempt = 0; attempt < 3; attempt++) {
      expect((await refusalOf(auth.signIn('a@b.c')))?.metadata).toEqual({
        code: 'rate_limited',
        rateLimitKey: 'cmdx:rl:Auth.signIn:a@b.c',
        limiter: 'leaky_bucket',
        onLimit: 'fail',
        max: 2,
        per: 0.09,
        level: 2.1,
        retryAfter: 0.009,
      });
    }
    expect(await store.get('cmdx:rl:Auth.signIn:a@b.c:lb')).toBe('126000:0');
    expect(await store.remainingTtl('cmdx:rl:Auth.signIn:a@b.c:lb')).toBe(0.126);
  });

  it('max: 0 lets nobody in and names no time', async () => {
    const { get } = await boot({ providers: [Auth] });
    const denied = await refusalOf(get(Auth).closed());
    expect(denied?.metadata).toMatchObject({ max: 0, count: 1 });
    expect(denied?.retryAfter).toBeUndefined();
    expect(denied?.getResponse()).not.toHaveProperty('retryAfter');
    expect(get(Auth).ran).toBe(0);
  });

  it.each([['popular'], ['smooth']] as const)(
    'of 1,000 concurrent calls of %s exactly 5 are admitted',
    async (method) => {
      const { get } = await boot({ providers: [Auth] });
      const auth = get(Auth);
      const calls = Array.from({ length: 1_000 }, () => refusalOf(auth[method]()));
      const refused = (await Promise.all(calls)).filter((refusal) => refusal !== undefined);
      expect(auth.ran).toBe(5);
      expect(refused).toHaveLength(995);
    },
  );
});

async function refusalOf(call: Promise<unknown>): Promise<RateLimitedError | undefined> {
  try {
    await call;
    return undefined;
  } catch (error) {
    if (error instanceof RateLimitedError) return error;
    throw error;
  }
}

/** A small seeded generator (mulberry32 by Tommy Ettinger), so that a failure can be repeated. */
function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
