import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { arg, CmdxModule, LockWith, RateLimit } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { prepareRedis } from '../support/redis-binary.js';
import { startRedis } from '../support/redis-server.js';
import { interleave, median, type Summary, summarize } from './statistics.js';

@Injectable()
class Work {
  @RateLimit(arg(0), { max: 1_000_000_000, per: '1h' })
  async limit(_key: string): Promise<void> {}

  @LockWith(arg(0))
  @RateLimit(arg(0), { max: 1_000_000_000, per: '1h' })
  async lockAndLimit(_key: string): Promise<void> {}
}

export interface RedisRow {
  readonly label: string;
  /** Microseconds per call, one after the other: the p50 of each round. */
  readonly p50: Summary;
}

export interface RedisSettings {
  readonly rounds: number;
  readonly callsPerRound: number;
}

/** What a guarded call takes on Redis, beside as many bare round trips on one connection. */
export async function measureRedis(settings: RedisSettings): Promise<RedisRow[]> {
  prepareRedis();
  const server = await startRedis();
  const client = new Redis(server.port, '127.0.0.1');
  const store = new RedisStore({ client });

  @Module({ imports: [CmdxModule.forRoot({ store })], providers: [Work] })
  class WorkModule {}
  const app = await NestFactory.createApplicationContext(WorkModule, { logger: false });
  try {
    const work = app.get(Work);
    const subjects: readonly (readonly [string, () => Promise<unknown>])[] = [
      ['1 PING', () => client.ping()],
      ['limit (1 trip)', () => work.limit('account')],
      ['2 PINGs', () => client.ping().then(() => client.ping())],
      ['lock + limit (2 trips)', () => work.lockAndLimit('account')],
    ];
    const measure = ([, call]: (typeof subjects)[number]): Promise<number> =>
      typical(call, settings.callsPerRound);
    for (const subject of subjects) await measure(subject);
    const values = await interleave(subjects, settings.rounds, measure);
    return subjects.map(([label], position) => ({
      label,
      p50: summarize(values[position] ?? []),
    }));
  } finally {
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
