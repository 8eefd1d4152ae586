import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { arg, Cmdx, CmdxModule, LockWith, RateLimit } from '../../lib/index.js';
import { RedisStore } from '../../lib/store/redis/index.js';

/** What the test asks of one process: so many calls at once, for one key. */
export interface Order {
  readonly method: 'start' | 'update';
  readonly key: string;
  readonly calls: number;
}

/** How the calls ended: `'success'`, or the code of the refusal, and how often each. */
export type Outcomes = Readonly<Record<string, number>>;

const url = process.argv[2] ?? '';
const redis = new Redis(url);

@Injectable()
class Room {
  @RateLimit(arg(0), { max: 5, per: '10m' })
  async start(_key: string): Promise<void> {}

  /**
   * Counts itself in and out where both processes see it, and what it saw. Two in the room at once
   * would count to two; a lost update would leave the number of bodies short.
   */
  @LockWith(arg(0), { wait: 60 })
  async update(key: string): Promise<void> {
    const inside = await redis.incr(`${key}:inside`);
    if (inside > 1) await redis.incr(`${key}:overlaps`);
    const bodies = Number(await redis.get(`${key}:bodies`));
    await redis.set(`${key}:bodies`, bodies + 1);
    await redis.decr(`${key}:inside`);
  }
}

@Module({
  imports: [CmdxModule.forRoot({ store: new RedisStore({ client: redis }), storeTimeout: '10s' })],
  providers: [Room],
})
class WorkerModule {}

const app = await NestFactory.createApplicationContext(WorkerModule, { logger: ['error'] });
const room = app.get(Room);
const cmdx = app.get(Cmdx);

process.on('message', async ({ method, key, calls }: Order) => {
  const results = await Promise.all(
    Array.from({ length: calls }, () => cmdx.execute(() => room[method](key))),
  );
  const outcomes: Record<string, number> = {};
  for (const { status, metadata } of results) {
    const name = status === 'success' ? status : String(metadata.code);
    outcomes[name] = (outcomes[name] ?? 0) + 1;
  }
  process.send?.(outcomes);
});

process.once('SIGTERM', async () => {
  await app.close();
  await redis.quit();
  process.disconnect();
});

process.send?.('ready');
