import { Injectable, Module } from '@nestjs/common';
import type { INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { CmdxModule, RateLimit, RateLimitedError, Store } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

const DENIALS_PER_LIMITER = 100;
/** A store counts whole milliseconds, and never tells one too few. */
const ROUNDING_MS = 1;
const WINDOWS_MS = [40, 55, 70, 85, 100] as const;

@Injectable()
class Doors {
  @RateLimit((key: string) => key, { max: 1, per: '40ms' })
  async fixed_window40(_key: string): Promise<void> {}
  @RateLimit((key: string) => key, { max: 1, per: '55ms' })
  async fixed_window55(_key: string): Promise<void> {}
  @RateLimit((key: string) => key, { max: 1, per: '70ms' })
  async fixed_window70(_key: string): Promise<void> {}
  @RateLimit((key: string) => key, { max: 1, per: '85ms' })
  async fixed_window85(_key: string): Promise<void> {}
  @RateLimit((key: string) => key, { max: 1, per: '100ms' })
  async fixed_window100(_key: string): Promise<void> {}
  @RateLimit((key: string) => key, { max: 1, per: '40ms', limiter: 'leaky_bucket' })
  async leaky_bucket40(_key: string): Promise<void> {}
  @RateLimit((key: string) => key, { max: 1, per: '55ms', limiter: 'leaky_bucket' })
  async leaky_bucket55(_key: string): Promise<void> {}
  @RateLimit((key: string) => key, { max: 1, per: '70ms', limiter: 'leaky_bucket' })
  async leaky_bucket70(_key: string): Promise<void> {}
  @RateLimit((key: string) => key, { max: 1, per: '85ms', limiter: 'leaky_bucket' })
  async leaky_bucket85(_key: string): Promise<void> {}
  @RateLimit((key: string) => key, { max: 1, per: '100ms', limiter: 'leaky_bucket' })
  async leaky_bucket100(_key: string): Promise<void> {}
}

type Door = (key: string) => Promise<void>;
/** What a probe found out about the retry time it was told. */
type Verdict = 'true' | 'sent too late' | 'admitted too early' | 'denied too late';

let server: RedisServer;
let app: INestApplicationContext;
let doors: Doors;

beforeAll(async () => {
  server = await startRedis();

  @Module({
    imports: [CmdxModule.forRoot({ store: new RedisStore({ url: server.url }) })],
    providers: [Doors],
  })
  class Application {}

  app = await NestFactory.createApplicationContext(Application, { logger: false });
  doors = app.get(Doors);
  await app.get(Store).get('warm');
});

afterAll(async () => {
  await app.close();
  await server.stop();
});

// Both at once: neither is often at the one moment that the other watches the clock.
it.concurrent.each(['fixed_window', 'leaky_bucket'] as const)(
  'admits at retryAfter + 5 ms and denies at retryAfter - 5 ms (%s)',
  async (limiter) => {
    let repeats = 0;
    for (let denial = 0; denial < DENIALS_PER_LIMITER;) {
      const windowMs = WINDOWS_MS[denial % WINDOWS_MS.length] as number;
      const door = (doors as unknown as Record<string, Door>)[`${limiter}${windowMs}`] as Door;
      const verdict = await probe(door.bind(doors), `${denial}.${repeats}`);
      if (verdict === 'sent too late') {
        repeats += 1;
      } else {
        expect([denial, verdict]).toEqual([denial, 'true']);
        denial += 1;
      }
    }
    console.info(`${limiter}: ${DENIALS_PER_LIMITER} denials, ${repeats} probes repeated`);
  },
  60_000,
);

/**
 * One denial, asked again 5 ms too early and 5 ms after it said. A probe that a busy machine sent too
 * late says nothing about the store, and is made again.
 */
async function probe(door: Door, key: string): Promise<Verdict> {
  await door(key);
  const sentAt = performance.now();
  const denial = await deniedBy(door, key);
  const receivedAt = performance.now();
  if (!denial) return 'sent too late';
  const retryMs = (denial.retryAfter as number) * 1_000;
  // The store decided somewhere between sending and receiving: each probe stays on its side of both.
  await reach(sentAt + retryMs - 5);
  const early = await deniedBy(door, key);
  const earlyAnsweredAt = performance.now();
  const due = sentAt + retryMs - ROUNDING_MS;
  if (!early) return earlyAnsweredAt >= due ? 'sent too late' : 'admitted too early';
  await reach(receivedAt + retryMs + 5);
  return (await deniedBy(door, key)) ? 'denied too late' : 'true';
}

async function deniedBy(door: Door, key: string): Promise<RateLimitedError | undefined> {
  try {
    await door(key);
    return undefined;
  } catch (error) {
    if (error instanceof RateLimitedError) return error;
    throw error;
  }
}

/** Sleeps most of the way, then watches the clock: timers alone are a millisecond or more late. */
async function reach(at: number): Promise<void> {
  const left = at - performance.now();
  if (left > 3) await new Promise((resolve) => setTimeout(resolve, left - 3));
  while (performance.now() < at);
}
