import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { Redis } from 'ioredis';
import type { Clock } from '../../lib/clock/clock.js';
import { Deadline } from '../../lib/clock/deadline.js';
import { parseCircuit } from '../../lib/store/circuit.js';
import { parseClaim } from '../../lib/store/claim.js';
import { MemoryStore } from '../../lib/store/memory/memory.store.js';
import { RedisStore } from '../../lib/store/redis/index.js';
import type {
  CircuitStep,
  EnterReply,
  EnterStep,
  Hold,
  KeyReport,
  LeaveReply,
  LeaveStep,
  OutcomeStep,
  Store,
} from '../../lib/store/store.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';

/** How many random schedules to compare; a soak run sets thousands. */
const RUNS = Number(process.env['CMDX_FUZZ_RUNS'] ?? 150);
/** Waits are whole grains and lifetimes end between two of them, so that no decision hangs on the real milliseconds that a run takes. */
const GRAIN_MS = 1_000;
const OFFSET_MS = 500;
/** A breaker's window: its buckets are as long as a grain, so that waits shift them by whole ones. */
const BREAKER_WINDOW_MS = 10 * GRAIN_MS;
/** Redis rounds a lifetime to its own milliseconds. */
const ROUNDING_MS = 2;

type Action =
  | { readonly do: 'enter'; readonly steps: readonly EnterStep[] }
  | { readonly do: 'leave'; readonly steps: readonly LeaveStep[] }
  | { readonly do: 'renew'; readonly holds: readonly Hold[] }
  | { readonly do: 'wait'; readonly ms: number };

const lifetime = fc.integer({ min: 0, max: 4 }).map((grains) => grains * GRAIN_MS + OFFSET_MS);
const token = fc.constantFrom('t1', 't2', 't3');
const name = fc.integer({ min: 1, max: 3 });
const claimKey = name.map((n) => `claim${n}`);
const fingerprint = fc.constantFrom(undefined, undefined, 'f1', 'f2');
const circuitKey = fc.constantFrom('circuit1', 'circuit1', 'circuit2');
const permits = fc.integer({ min: 1, max: 3 });
/** Ends between two waits, also when it is added to the time that a breaker is open. */
const circuitTtl = fc.integer({ min: 1, max: 9 }).map((grains) => grains * GRAIN_MS + 450);
/** Whole grains: added to a lease, the end of the record lies between two waits too. */
const retention = fc.integer({ min: 1, max: 4 }).map((grains) => grains * GRAIN_MS);

const circuitStep: fc.Arbitrary<CircuitStep> = fc.record({
  kind: fc.constant('circuit' as const),
  key: circuitKey,
  token,
  permits,
  probeMs: lifetime,
  ttlMs: circuitTtl,
});

const enterStep: fc.Arbitrary<EnterStep> = fc.oneof(
  fc.record({
    kind: fc.constant('fixed_window' as const),
    key: name.map((n) => `window${n}`),
    max: fc.integer({ min: 0, max: 4 }),
    windowMs: lifetime,
  }),
  fc.record({
    kind: fc.constant('leaky_bucket' as const),
    key: name.map((n) => `bucket${n}`),
    capacityUs: fc.integer({ min: 0, max: 5_000_000 }),
    costUs: fc.integer({ min: 0, max: 2_000_000 }),
  }),
  fc.record({
    kind: fc.constant('lease' as const),
    key: name.map((n) => `lease${n}`),
    token,
    ttlMs: lifetime,
  }),
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('claim' as const),
      key: claimKey,
      token,
      leaseMs: lifetime,
      ttlMs: retention,
      fingerprint,
      onAbandoned: fc.constantFrom('fail' as const, 'rerun' as const),
    }),
  },
  { weight: 3, arbitrary: circuitStep },
);

/** Stands for an epoch: the last that was answered about the breaker, or the one before. */
const [LAST, LATE] = [0, 1];

const circuitOutcome: fc.Arbitrary<OutcomeStep> = fc.record({
  kind: fc.constant('outcome' as const),
  key: circuitKey,
  token,
  epoch: fc.constantFrom(LAST, LAST, LAST, LATE),
  success: fc.boolean(),
  failureRate: fc.constantFrom(0.3, 0.5, 1),
  minimumCalls: permits,
  windowMs: fc.constant(BREAKER_WINDOW_MS),
  permits,
  // With these it is open for a time that ends between two waits, each time.
  openMs: fc.constant(GRAIN_MS + OFFSET_MS),
  maxOpenMs: fc.constant(3 * GRAIN_MS),
  jitter: fc.constantFrom(0, 0.667),
  ttlMs: circuitTtl,
});

const leaveStep: fc.Arbitrary<LeaveStep> = fc.oneof(
  fc.record({
    kind: fc.constant('release' as const),
    key: name.map((n) => `lease${n}`),
    token,
    ttlMs: fc.constant(1_000),
  }),
  fc.record({
    kind: fc.constant('complete' as const),
    key: claimKey,
    token,
    run: fc.integer({ min: 1, max: 3 }),
    ttlMs: lifetime,
    fingerprint,
    outcome: fc.constantFrom(undefined, '', 'a:b\n', '{"id":1}'),
  }),
  fc.record({
    kind: fc.constant('unclaim' as const),
    key: claimKey,
    token,
    ttlMs: fc.constant(1_000),
  }),
  circuitOutcome,
  fc.record({
    kind: fc.constant('unpermit' as const),
    key: circuitKey,
    token,
    ttlMs: fc.constant(1_000),
  }),
);

const hold: fc.Arbitrary<Hold> = fc.record({
  kind: fc.constant('claim' as const),
  key: claimKey,
  token,
  leaseMs: lifetime,
  ttlMs: retention,
});

const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('enter' as const),
      steps: fc.array(enterStep, { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('leave' as const),
      steps: fc.array(leaveStep, { minLength: 1, maxLength: 3 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('enter' as const),
      steps: fc.tuple(circuitStep),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('leave' as const),
      steps: fc.tuple(circuitOutcome),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('renew' as const),
      holds: fc.array(hold, { minLength: 1, maxLength: 3 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      ms: fc.integer({ min: 1, max: 4 }).map((grains) => grains * GRAIN_MS),
    }),
  },
);

/** Chance alone seldom gets so far: it opens, it is probed, and the probe comes back. */
const probed: fc.Arbitrary<readonly Action[]> = fc
  .record({
    step: circuitStep,
    outcome: circuitOutcome,
    others: fc.array(action, { maxLength: 2 }),
  })
  .map(({ step, outcome, others }): readonly Action[] => {
    const { key, token: probe } = step;
    const opening = { ...outcome, key, success: false, minimumCalls: 1, ttlMs: 9 * GRAIN_MS + 450 };
    return [
      { do: 'leave', steps: [opening] },
      { do: 'wait', ms: 3 * GRAIN_MS },
      { do: 'enter', steps: [{ ...step, probeMs: 3 * GRAIN_MS + OFFSET_MS }] },
      ...others,
      { do: 'leave', steps: [{ ...outcome, key, token: probe }] },
    ];
  });

const schedule: fc.Arbitrary<readonly Action[]> = fc
  .array(
    fc.oneof(
      { weight: 12, arbitrary: action.map((each): readonly Action[] => [each]) },
      { weight: 1, arbitrary: probed },
    ),
    { minLength: 5, maxLength: 40 },
  )
  .map((actions) => actions.flat());

/** Shows the time of the last reply of Redis, plus what the schedule has waited. */
class FollowingClock implements Clock {
  waitedMs = 0;
  #redisUs = 0;

  /** Every answer of our scripts begins with the store's time in microseconds. */
  follow(data: Buffer): void {
    const time = /^\*\d+\r\n:(\d{16})\r\n/.exec(data.toString('latin1'))?.[1];
    if (time) this.#redisUs = Number(time);
  }

  now(): number {
    return (this.#redisUs + this.waitedMs * 1_000) / 1_000;
  }

  sleep(): Promise<void> {
    return Promise.resolve();
  }

  every(): () => void {
    return () => {};
  }
}

/**
 * What the memory store has answered of the epochs of breakers. They are moments, so that those in
 * Redis are earlier by what the schedule has waited; the first one is 0 in both.
 */
class Epochs {
  readonly #known = new Map<string, number[]>();

  constructor(private readonly clock: FollowingClock) {}

  clear(): void {
    this.#known.clear();
  }

  learn(steps: readonly (EnterStep | LeaveStep)[], replies: readonly object[]): void {
    for (const [i, { key }] of steps.entries()) {
      const { epoch } = (replies[i] ?? {}) as { readonly epoch?: number };
      const known = this.#known.get(key) ?? [];
      if (epoch !== undefined && epoch !== known.at(-1)) this.#known.set(key, [...known, epoch]);
    }
  }

  /** Puts a known epoch in the place of what stands for one. */
  resolve(step: LeaveStep): LeaveStep {
    if (step.kind !== 'outcome') return step;
    const known = this.#known.get(step.key) ?? [];
    return { ...step, epoch: known.at(step.epoch === LAST ? -1 : -2) ?? 0 };
  }

  /** What Redis knows as that epoch now. */
  aged<T extends object>(told: T): T {
    const { epoch } = told as { readonly epoch?: number };
    return epoch ? { ...told, epoch: epoch - this.clock.waitedMs } : told;
  }
}

describe('do the stores decide alike?', () => {
  let server: RedisServer;
  let proxy: TcpProxy;
  let redis: RedisStore;
  let observer: Redis;
  /** The longest that a call of this schedule took, in milliseconds. */
  let slowest = 0;
  const clock = new FollowingClock();
  const epochs = new Epochs(clock);

  beforeAll(async () => {
    server = await startRedis();
    proxy = await TcpProxy.start(server.port);
    redis = new RedisStore({ url: proxy.url });
    observer = new Redis(server.port, '127.0.0.1');
    proxy.onReply = (data) => clock.follow(data);
  });

  afterAll(async () => {
    await redis.close();
    observer.disconnect();
    await proxy.stop();
    await server.stop();
  });

  it(`same decisions, counts, levels and retry times in ${RUNS} random schedules`, async () => {
    await fc.assert(
      fc.asyncProperty(schedule, async (actions) => {
        await observer.flushall();
        clock.waitedMs = 0;
        slowest = 0;
        epochs.clear();
        const memory = new MemoryStore();
        memory.useClock(clock);
        try {
          for (const next of actions) await compare(next, memory);
          for (const key of ['claim1', 'claim2', 'claim3']) await compareRecords(key, memory);
          for (const key of ['circuit1', 'circuit2']) {
            await compareCircuits(key, memory);
          }
        } finally {
          await memory.close();
        }
      }),
      { numRuns: RUNS },
    );
  }, 3_600_000);

  /** Redis first: its reply carries the exact time at which memory has to take the same step. */
  async function compare(next: Action, memory: Store): Promise<void> {
    if (next.do === 'wait') {
      await age(observer, next.ms);
      clock.waitedMs += next.ms;
    } else if (next.do === 'leave') {
      const started = performance.now();
      const steps = next.steps.map((step) => epochs.resolve(step));
      const expected: LeaveReply[] = await redis.leave(steps.map((step) => epochs.aged(step)));
      slowest = Math.max(slowest, performance.now() - started);
      const actual = await memory.leave(steps);
      expect(actual.map((reply) => epochs.aged(reply))).toEqual(expected);
      epochs.learn(steps, actual);
    } else if (next.do === 'renew') {
      const started = performance.now();
      const expected = await redis.renew(next.holds);
      slowest = Math.max(slowest, performance.now() - started);
      expect(await memory.renew(next.holds)).toEqual(expected);
    } else {
      const started = performance.now();
      const expected = await redis.enter(next.steps, Deadline.after(5_000));
      slowest = Math.max(slowest, performance.now() - started);
      const actual = await memory.enter(next.steps, Deadline.after(5_000));
      expect(actual.map((reply) => epochs.aged(withoutLifetime(reply)))).toEqual(
        expected.map(withoutLifetime),
      );
      epochs.learn(next.steps, actual);
      for (const [i, reply] of actual.entries()) {
        const difference = lifetimeOf(reply) - lifetimeOf(expected[i]);
        // A server that stands still inside a script reads the time before and counts from after it.
        expect(Math.abs(difference)).toBeLessThanOrEqual(ROUNDING_MS + slowest);
      }
    }
  }

  async function compareCircuits(key: string, memory: Store): Promise<void> {
    const expected = await redis.inspect(key);
    const actual = await memory.inspect(key);
    expect(circuitOf(actual, clock.waitedMs)).toEqual(circuitOf(expected, 0));
    const difference = (actual?.remainingTtl ?? 0) - (expected?.remainingTtl ?? 0);
    expect(Math.abs(difference * 1_000)).toBeLessThanOrEqual(ROUNDING_MS + slowest);
  }

  async function compareRecords(key: string, memory: Store): Promise<void> {
    const expected = await redis.inspect(key);
    const actual = await memory.inspect(key);
    expect(factsOf(actual)).toEqual(factsOf(expected));
    for (const [i, remains] of remainsOf(actual).entries()) {
      const difference = remains - (remainsOf(expected)[i] ?? Infinity);
      expect(Math.abs(difference)).toBeLessThanOrEqual(ROUNDING_MS + slowest);
    }
  }
});

/** What stands there, and for how much longer: the two stores' clocks have drifted apart by the waits. */
function factsOf(report: KeyReport | undefined): object | undefined {
  const record = report && parseClaim(report.value);
  return record && { ...record, leaseUntil: undefined };
}

function remainsOf(report: KeyReport | undefined): readonly number[] {
  const record = report && parseClaim(report.value);
  if (!record) return [];
  const leaseMs = record.state === 'pending' ? record.leaseUntil - report.at : 0;
  return [report.remainingTtl * 1_000, leaseMs];
}

/** All that is known of a breaker, in times of Redis; what has lapsed may have been forgotten. */
function circuitOf(report: KeyReport | undefined, waitedMs: number): object | undefined {
  const record = report && parseCircuit(report.value);
  if (!record) return undefined;
  const aged = (moment: number): number => (moment === 0 ? 0 : moment - waitedMs);
  return {
    ...record,
    epoch: aged(record.epoch),
    openUntil: aged(record.openUntil),
    buckets: record.buckets.map((each) => ({ ...each, slot: each.slot - waitedMs / GRAIN_MS })),
    permits: record.permits
      .filter(({ deadline }) => deadline > report.at)
      .map((each) => ({ ...each, deadline: aged(each.deadline) })),
  };
}

/** A bucket's figures come from one clock and must be equal; a lifetime is rounded by each store. */
function withoutLifetime(reply: EnterReply): object {
  if (reply.kind === 'leaky_bucket' || reply.kind === 'circuit') return reply;
  return { ...reply, remainingMs: undefined };
}

function lifetimeOf(reply: EnterReply | undefined): number {
  return reply && 'remainingMs' in reply ? (reply.remainingMs ?? 0) : 0;
}

/**
 * Lets time pass for what stands in Redis without waiting: every end of a lifetime, the moment in
 * every bucket, the end of every claim's lease and all times of a breaker are moved back. In one
 * script, so that nothing drifts. Needs Redis 7.
 */
async function age(observer: Redis, ms: number): Promise<void> {
  await observer.eval(AGE, 0, ms);
}

const AGE = `
for _, key in ipairs(redis.call('KEYS', '*')) do
  local expires_at = redis.call('PEXPIRETIME', key) - ARGV[1]
  local text = redis.call('GET', key)
  local level, last = string.match(text, '^(%d+):(%d+)$')
  if level then
    redis.call('SET', key, string.format('%s:%.0f', level, last - ARGV[1] * 1000))
  end
  local run, lease_until, rest = string.match(text, '^p:(%d+):(%d+):(.*)$')
  if run then
    redis.call('SET', key, string.format('p:%s:%.0f:', run, lease_until - ARGV[1]) .. rest)
  end
  local state, epoch, open_until, counts, buckets, permits =
    string.match(text, '^([coh]):(%d+):(%d+):(%d+:%d+)|([^|]*)|(.*)$')
  if state then
    local function aged(moment)
      return string.format('%.0f', tonumber(moment) == 0 and 0 or moment - ARGV[1])
    end
    buckets = string.gsub(buckets, '(%d+)(,%d+,%d+;)', function (slot, rest)
      return string.format('%.0f', slot - ARGV[1] / ${GRAIN_MS}) .. rest
    end)
    permits = string.gsub(permits, ',(%d+);', function (deadline)
      return ',' .. aged(deadline) .. ';'
    end)
    redis.call('SET', key, state .. ':' .. aged(epoch) .. ':' .. aged(open_until) .. ':' .. counts
      .. '|' .. buckets .. '|' .. permits)
  end
  redis.call('PEXPIREAT', key, string.format('%.0f', expires_at))
end
`;
