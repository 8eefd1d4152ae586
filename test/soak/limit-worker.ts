import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { arg, CmdxModule, RateLimit, RateLimitedError } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { type LimitOrder, MAX } from './limit-order.js';

@Injectable()
class Limited {
  @RateLimit(arg(0), { max: MAX, per: '10m' })
  async window(_key: string): Promise<void> {}

  /** Leaks nothing while a round lasts. */
  @RateLimit(arg(0), { max: MAX, per: '10m', limiter: 'leaky_bucket' })
  async bucket(_key: string): Promise<void> {}
}

@Module({
  imports: [
    CmdxModule.forRoot({
      store: new RedisStore({ url: process.argv[2] ?? '' }),
      // A loaded machine may be slow; here only the count matters.
      storeTimeout: '20s',
    }),
  ],
  providers: [Limited],
})
class WorkerModule {}

const app = await NestFactory.createApplicationContext(WorkerModule, { logger: ['error'] });
const limited = app.get(Limited);

process.on('message', async ({ limiter, key, times }: LimitOrder) => {
  const outcomes = await Promise.all(
    Array.from({ length: times }, () =>
      limited[limiter](key).then(
        () => 1,
        (error: unknown) => {
          if (error instanceof RateLimitedError) return 0;
          throw error;
        },
      ),
    ),
  );
  process.send?.(outcomes.filter((admitted) => admitted === 1).length);
});

process.once('SIGTERM', async () => {
  await app.close();
  process.disconnect();
});
process.send?.('started');
