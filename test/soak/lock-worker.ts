import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  arg,
  CmdxModule,
  currentInvocation,
  LockBusyError,
  LockWith,
  StoreUnavailableError,
} from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { CALLERS, KEYS, lockKeyOf, TTL_MS } from './lock-order.js';

/**
 * Answers `late` when the lease is no longer this run's, else notes who is inside for as long as
 * the lease lasts, or answers who is inside already.
 */
const GO_IN = `
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then return 'late' end
local inside = redis.call('GET', KEYS[2])
if inside then
  redis.call('RPUSH', 'violations', ARGV[1] .. ' and ' .. inside .. ' together under ' .. KEYS[1])
  return inside
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', math.max(1, redis.call('PTTL', KEYS[1])))
return 'alone'
`;
const GO_OUT = `if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end`;

const url = process.argv[2] ?? '';
const witness = new Redis(url);

@Injectable()
class Contended {
  @LockWith(arg(0), { ttl: TTL_MS / 1_000, wait: TTL_MS / 500 })
  async work(key: string): Promise<void> {
    const tid = currentInvocation()?.tid ?? '';
    const lockKey = lockKeyOf(Number(key.slice('key-'.length)));
    const seen = await witness.eval(GO_IN, 2, lockKey, `inside:${key}`, tid);
    await witness.hincrby('tally', seen === 'late' ? 'late' : 'bodies', 1);
    await sleep(Math.random() * 10);
    await witness.eval(GO_OUT, 1, `inside:${key}`, tid);
  }
}

@Module({
  imports: [CmdxModule.forRoot({ store: new RedisStore({ url }) })],
  providers: [Contended],
})
class WorkerModule {}

const app = await NestFactory.createApplicationContext(WorkerModule, { logger: ['error'] });
const contended = app.get(Contended);
const stopping = new AbortController();

async function caller(): Promise<void> {
  while (!stopping.signal.aborted) {
    try {
      await contended.work(`key-${Math.floor(Math.random() * KEYS)}`);
    } catch (error) {
      if (error instanceof LockBusyError) await witness.hincrby('tally', 'busy', 1);
      else if (error instanceof StoreUnavailableError) await witness.hincrby('tally', 'outages', 1);
      else await witness.rpush('violations', `a call failed: ${String(error)}`);
    }
  }
}

const callers = Promise.all(Array.from({ length: CALLERS }, caller));
process.send?.('started');

process.once('SIGTERM', async () => {
  stopping.abort();
  await callers;
  await app.close();
  witness.disconnect();
  process.disconnect();
});
