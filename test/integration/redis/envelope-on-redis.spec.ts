import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { INestApplicationContext } from '@nestjs/common';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import {
  CmdxModule,
  currentInvocation,
  LockWith,
  perTask,
  RateLimit,
  segment,
  arg,
} from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

@Injectable()
class Payouts {
  inside: () => unknown = () => undefined;

  @RateLimit((account: string) => account, { max: 100, per: 60 })
  @LockWith((account: string) => account, { ttl: 30 })
  async pay(account: string): Promise<unknown> {
    void account;
    return this.inside();
  }

  @RateLimit(arg(0), { max: 1, per: 60 })
  @LockWith(arg(0))
  async once(account: string): Promise<string> {
    return account;
  }

  @LockWith(segment`${arg(0)}:${arg(1)}`, { name: 'ledger' })
  async post(tenant: string, account: string): Promise<unknown> {
    void [tenant, account];
    return this.inside();
  }

  @RateLimit(perTask, { max: 3, per: '250ms', limiter: 'leaky_bucket' })
  async poll(): Promise<void> {}
}

let server: RedisServer;
let observer: Redis;
let app: INestApplicationContext;
let payouts: Payouts;

beforeAll(async () => {
  server = await startRedis();
  observer = new Redis(server.url);

  @Module({
    imports: [CmdxModule.forRoot({ store: new RedisStore({ url: server.url }) })],
    providers: [Payouts],
  })
  class Application {}

  app = await NestFactory.createApplicationContext(Application, { logger: false });
  payouts = app.get(Payouts);
});

afterAll(async () => {
  await app.close();
  observer.disconnect();
  await server.stop();
});

beforeEach(async () => {
  payouts.inside = () => undefined;
  await observer.flushall();
  await payouts.pay('warm'); // the scripts are loaded now, and the connection is warm
});

/** The commands that clients sent while `work` ran; those that scripts ran inside are not counted. */
async function commandsDuring(work: () => Promise<unknown>): Promise<readonly string[]> {
  const monitor = await observer.monitor();
  const seen: string[] = [];
  monitor.on('monitor', (_time: string, args: string[], source: string) => {
    if (source !== 'lua') seen.push(String(args[0]).toLowerCase());
  });
  try {
    await work();
    await observer.echo('end');
    while (seen.at(-1) !== 'echo') await new Promise((resolve) => setTimeout(resolve, 5));
    return seen.slice(0, -1);
  } finally {
    monitor.disconnect();
  }
}

describe('What does an envelope cost the server?', () => {
  it('sends two commands for rate limit and lock together', async () => {
    expect(await commandsDuring(() => payouts.pay('acct_1'))).toEqual(['evalsha', 'evalsha']);
  });

  it('sends one command for a rate limit alone', async () => {
    expect(await commandsDuring(() => payouts.poll())).toEqual(['evalsha']);
  });

  it('sends one command for a refusal at the door', async () => {
    await payouts.once('acct_2');
    const refused = (): Promise<void> =>
      expect(payouts.once('acct_2')).rejects.toMatchObject({ code: 'rate_limited' });
    expect(await commandsDuring(refused)).toEqual(['evalsha']);
  });

  it('sends one command for a busy lock', async () => {
    let release = (): void => undefined;
    payouts.inside = () => new Promise<void>((resolve) => (release = resolve));
    const first = payouts.pay('acct_3');
    while ((await observer.exists('cmdx:lock:Payouts.pay:acct_3')) === 0);
    const refused = (): Promise<void> =>
      expect(payouts.pay('acct_3')).rejects.toMatchObject({ code: 'busy' });
    expect(await commandsDuring(refused)).toEqual(['evalsha']);
    release();
    await first;
  });
});

describe('What stands in Redis?', () => {
  it("keeps the holder's tid under the lock's key, with a ttl, while the body runs", async () => {
    payouts.inside = async () => {
      const tid = currentInvocation()?.tid;
      const key = 'cmdx:lock:Payouts.pay:acct_4';
      expect(currentInvocation()?.lock).toEqual({ key });
      expect(await observer.get(key)).toBe(tid);
      const ttl = await observer.pttl(key);
      expect(ttl).toBeGreaterThan(29_000);
      expect(ttl).toBeLessThanOrEqual(30_000);
      return 'ran';
    };
    expect(await payouts.pay('acct_4')).toBe('ran');
    expect(await observer.get('cmdx:lock:Payouts.pay:acct_4')).toBeNull();
  });

  it('counts starts under the key of the limit, with the window as its ttl', async () => {
    await payouts.pay('acct_5');
    await payouts.pay('acct_5');
    expect(await observer.get('cmdx:rl:Payouts.pay:acct_5')).toBe('2');
    expect(await observer.pttl('cmdx:rl:Payouts.pay:acct_5')).toBeGreaterThan(59_000);
  });

  it('keeps a leaky bucket as "level:last_at" in microseconds under :lb', async () => {
    await payouts.poll();
    expect(await observer.get('cmdx:rl:Payouts.poll:lb')).toMatch(/^250000:\d{16}$/);
    expect(await observer.pttl('cmdx:rl:Payouts.poll:lb')).toBeLessThanOrEqual(250);
  });

  it('puts a shared name in the place of the task, and escapes the parts of a composed key', async () => {
    payouts.inside = () => observer.keys('cmdx:lock:*');
    expect(await payouts.post('t:1', 'a')).toEqual(['cmdx:lock:ledger:t%3A1:a']);
    expect(await payouts.post('t', '1:a')).toEqual(['cmdx:lock:ledger:t:1%3Aa']);
  });

  it('writes nothing for a blank key', async () => {
    await observer.flushall();
    await payouts.pay('');
    expect(await observer.keys('*')).toEqual([]);
  });
});
