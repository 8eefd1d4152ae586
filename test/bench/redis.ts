import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { arg, CmdxModule, LockWith, RateLimit } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { prepareRedis } from '../support/redis-binary.js';
import { startRedis } from '../support/redis-server.js';
import { assertGuards, ourEnvelope } from './envelope.js';
import { redisStack, type Work } from './rivals.js';
import { interleave, median, type Summary, summarize } from './statistics.js';

const NEVER_REACHED = 1_000_000_000;

@Injectable()
class Limited {
  @RateLimit(arg(0), { max: NEVER_REACHED, per: '1h' })
  async limit(_key: string): Promise<void> {}

  @LockWith(arg(0))
  @RateLimit(arg(0), { max: NEVER_REACHED, per: '1h' })
  async lockAndLimit(_key: string): Promise<void> {}
}

export interface RedisRow {
  readonly label: string;
  /** Microseconds per call, one after the other: the p50 of each round. */
  readonly p50: Summary;
}

export interface RedisReport {
  readonly rows: readonly RedisRow[];
  /** The five rings over two PINGs, of each round. */
  readonly toTwoPings: Summary;
  /** What the other packages take over the five rings, of each round. */
  readonly othersToOurs: Summary;
  /** Which other packages. */
  readonly others: Readonly<Record<string, string>>;
}

export interface RedisSettings {
  readonly rounds: number;
  readonly callsPerRound: number;
}

const LABELS = {
  ping: '1 PING',
  limit: 'limit (1 trip)',
  twoPings: '2 PINGs',
  lockAndLimit: 'lock + limit (2 trips)',
  five: 'five rings (2 trips)',
  others: 'throttler + redlock + node-idempotency (5 trips)',
};

/** What a guarded call takes on Redis, beside bare round trips and beside the usual packages. */
export async function measureRedis({ rounds, callsPerRound }: RedisSettings): Promise<RedisReport> {
  prepareRedis();
  const server = await startRedis();
  const client = new Redis(server.port, '127.0.0.1');
  const makeStore = (): RedisStore => new RedisStore({ client });

  @Module({ imports: [CmdxModule.forRoot({ store: makeStore() })], providers: [Limited] })
  class LimitedModule {}
  const echo: Work = async (_key, _request, value) => value;
  const app = await NestFactory.createApplicationContext(LimitedModule, { logger: false });
  const five = await ourEnvelope(echo, { idempotent: true, max: NEVER_REACHED }, makeStore());
  const others = await redisStack(server.port, echo, NEVER_REACHED);
  try {
    await assertGuards((work, max) => ourEnvelope(work, { idempotent: true, max }, makeStore()), {
      idempotency: true,
      breakerAndRetry: true,
    });
    await assertGuards((work, max) => redisStack(server.port, work, max), {
      idempotency: true,
      breakerAndRetry: false,
    });
    await client.flushall();
    const limited = app.get(Limited);
    let requests = 0;
    const calls: Readonly<Record<keyof typeof LABELS, () => Promise<unknown>>> = {
      ping: () => client.ping(),
      limit: () => limited.limit('account'),
      twoPings: () => client.ping().then(() => client.ping()),
      lockAndLimit: () => limited.lockAndLimit('account'),
      five: () => five.call('account', `request-${++requests}`, 7),
      others: () => others.call('account', `request-${++requests}`, 7),
    };
    const names = Object.keys(LABELS) as (keyof typeof LABELS)[];
    const measure = (name: keyof typeof LABELS): Promise<number> =>
      typical(calls[name], callsPerRound);
    for (const name of names) await measure(name);
    const values = await interleave(names, rounds, measure);
    const of = (name: keyof typeof LABELS): readonly number[] => values[names.indexOf(name)] ?? [];
    return {
      rows: names.map((name) => ({ label: LABELS[name], p50: summarize(of(name)) })),
      toTwoPings: ratios(of('five'), of('twoPings')),
      othersToOurs: ratios(of('others'), of('five')),
      others: others.versions,
    };
  } finally {
    await others.close();
    await five.close();
    await app.close();
    client.disconnect();
    await server.stop();
  }
}

async function typical(call: () => Promise<unknown>, times: number): Promise<number> {
  const each: number[] = [];
  for (let time = 0; time < times; time++) {
    const started = performance.now();
    await call();
    each.push((performance.now() - started) * 1_000);
  }
  return median(each);
}

function ratios(above: readonly number[], below: readonly number[]): Summary {
  return summarize(above.map((value, round) => value / (below[round] ?? Number.NaN)));
}
