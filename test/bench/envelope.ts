import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  arg,
  CircuitBreaker,
  CmdxModule,
  IdempotentBy,
  LockWith,
  MemoryStore,
  RateLimit,
  RetryOn,
  type Store,
} from 'nestjs-cmdx';
import {
  type Envelope,
  Flaky,
  LOCK_TTL_MS,
  memoryStack,
  RETRY_DELAY_MS,
  type Work,
} from './rivals.js';
import { interleave, type Summary, summarize } from './statistics.js';

/** The same work, surrounded by ours or by theirs. */
export interface Subject {
  readonly call: Work;
  close(): Promise<void>;
}

const NEVER_REACHED = 1_000_000_000;
/** Every request of a run is remembered, on both sides. */
const ROOMY = { maxKeys: 10_000_000, maxBytes: 8 * 1024 ** 3 };

export interface EnvelopeRow {
  readonly label: string;
  readonly keys: number;
  /** CPU nanoseconds per call, the body's own included. */
  readonly ours: Summary;
  readonly theirs: Summary;
  /** Ours over theirs, of each round. */
  readonly ratio: Summary;
}

export interface EnvelopeSettings {
  readonly rounds: number;
  readonly callsPerRound: number;
  readonly manyKeys: number;
}

/** The whole envelope in memory, beside the usual packages put together by hand. */
export async function measureEnvelope(settings: EnvelopeSettings): Promise<EnvelopeRow[]> {
  const rows: EnvelopeRow[] = [];
  for (const idempotent of [false, true]) {
    const envelope = { idempotent, max: NEVER_REACHED };
    for (const make of [ourEnvelope, theirEnvelope]) {
      const rings = { idempotency: idempotent, breakerAndRetry: true };
      await assertGuards((work, max) => make(work, { idempotent, max }), rings);
    }
    for (const keys of [1, settings.manyKeys]) {
      const subjects = [await ourEnvelope(echo, envelope), await theirEnvelope(echo, envelope)];
      try {
        const measure = countedTime(keys, settings.callsPerRound);
        // Compiled before it counts.
        for (const subject of subjects) await measure(subject);
        const [ours = [], theirs = []] = await interleave(subjects, settings.rounds, measure);
        rows.push({
          label: idempotent ? 'five rings' : 'four rings (no idempotency)',
          keys,
          ours: summarize(ours),
          theirs: summarize(theirs),
          ratio: summarize(ours.map((value, round) => value / (theirs[round] ?? Number.NaN))),
        });
      } finally {
        for (const subject of subjects) await subject.close();
      }
    }
  }
  return rows;
}

/** Ours: rate limit, circuit breaker, lock, idempotency, retry. */
export async function ourEnvelope(
  work: Work,
  { idempotent, max }: Envelope,
  store: Store = new MemoryStore(ROOMY),
): Promise<Subject> {
  // Not async around a method that is: that would be one promise more than theirs.
  @Injectable()
  class Payments {
    @RateLimit(arg(0), { max, per: '1h' })
    @CircuitBreaker('payments-api')
    @LockWith(arg(0), { ttl: `${LOCK_TTL_MS}ms` })
    @IdempotentBy(arg(1))
    @RetryOn(Flaky, { delay: `${RETRY_DELAY_MS}ms` })
    five(key: string, request: string, value: number): Promise<number> {
      return work(key, request, value);
    }

    @RateLimit(arg(0), { max, per: '1h' })
    @CircuitBreaker('payments-api')
    @LockWith(arg(0), { ttl: `${LOCK_TTL_MS}ms` })
    @RetryOn(Flaky, { delay: `${RETRY_DELAY_MS}ms` })
    four(key: string, request: string, value: number): Promise<number> {
      return work(key, request, value);
    }
  }

  @Module({ imports: [CmdxModule.forRoot({ store })], providers: [Payments] })
  class PaymentsModule {}
  const app = await NestFactory.createApplicationContext(PaymentsModule, { logger: false });
  const payments = app.get(Payments);
  return {
    call: idempotent
      ? (key, request, value) => payments.five(key, request, value)
      : (key, request, value) => payments.four(key, request, value),
    close: () => app.close(),
  };
}

async function theirEnvelope(work: Work, envelope: Envelope): Promise<Subject> {
  return { call: memoryStack(work, envelope), close: async () => {} };
}

const echo: Work = async (_key, _request, value) => value;

/**
 * CPU time, as in {@link measureCalls}. No request is made twice: each is remembered.
 *
 * @returns nanoseconds per call
 */
function countedTime(keyCount: number, calls: number): (subject: Subject) => Promise<number> {
  const keys = Array.from({ length: keyCount }, (_, position) => `account-${position}`);
  const requests = Array.from({ length: calls }, (_, position) => `request-${position}`);
  let round = 0;
  return async ({ call }) => {
    round += 1;
    const prefix = `${round}-`;
    const started = process.cpuUsage();
    for (let i = 0; i < calls; i++) {
      await call(keys[i % keyCount] as string, prefix + requests[i], i);
    }
    const { user, system } = process.cpuUsage(started);
    return ((user + system) * 1_000) / calls;
  };
}

/** Which rings a subject has besides rate limit and lock. */
export interface Rings {
  readonly idempotency: boolean;
  readonly breakerAndRetry: boolean;
}

/** What skips its work would be fast, and worthless: each ring is seen to guard, on either side. */
export async function assertGuards(
  make: (work: Work, max: number) => Promise<Subject>,
  rings: Rings,
): Promise<void> {
  const max = 15;
  let runs = 0;
  let body = async (value: number): Promise<number> => value;
  const subject = await make((_key, _request, value) => {
    runs += 1;
    return body(value);
  }, max);
  const call = (key: string, request: string): Promise<unknown> =>
    subject.call(key, request, 7).catch(() => 'refused');
  const expectRuns = async (ring: string, wanted: number, act: () => Promise<unknown>) => {
    runs = 0;
    await act();
    if (runs !== wanted) throw new Error(`bench, ${ring}: ${runs} bodies ran, not ${wanted}`);
  };
  try {
    await expectRuns('lock', 1, () => Promise.all([call('a', 'first'), call('a', 'second')]));
    await expectRuns('idempotency', rings.idempotency ? 0 : 1, () => call('a', 'first'));
    await expectRuns('claim', rings.idempotency ? 1 : 2, () =>
      Promise.all([call('a', 'again'), call('e', 'again')]),
    );
    await expectRuns('rate limit', max, async () => {
      for (let i = 0; i < max + 5; i++) await call('b', `limited-${i}`);
    });
    if (!rings.breakerAndRetry) return;
    await expectRuns('retry', 2, () => {
      body = async (value) => {
        body = async () => value;
        throw new Flaky();
      };
      return call('c', 'flaky');
    });
    body = async () => {
      throw new Error('The dependency is down.');
    };
    for (let i = 0; i < 100; i++) await call(`d-${i}`, `failing-${i}`);
    await expectRuns('circuit breaker', 0, () => call('f', 'rejected'));
  } finally {
    await subject.close();
  }
}
