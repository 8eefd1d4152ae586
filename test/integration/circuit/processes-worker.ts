import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { CmdxModule } from '../../../lib/index.js';
import { RedisStore } from '../../../lib/store/redis/index.js';
import { RecordingTelemetry } from '../../../lib/testing/index.js';
import { Upstream } from './upstream.js';

/** Calls the upstream so many times at once, each of which succeeds, fails or never ends. */
export interface Order {
  readonly calls: number;
  readonly end: 'success' | 'failure' | 'never';
}

export interface Report {
  /** Bodies that ran for this order. */
  readonly runs: number;
  /** How the calls ended: with their value, or the code or message of their error. */
  readonly ends: readonly unknown[];
  /** Changes of the breaker that this process was told of, since its last report. */
  readonly transitions: readonly string[];
}

const telemetry = new RecordingTelemetry();

@Module({
  imports: [
    CmdxModule.forRoot({
      store: new RedisStore({ url: process.argv[2] ?? '' }),
      telemetry: [telemetry],
      storeTimeout: '5s',
    }),
  ],
  providers: [Upstream],
})
class WorkerModule {}

const app = await NestFactory.createApplicationContext(WorkerModule, { logger: ['error'] });
const upstream = app.get(Upstream);

const BODIES = {
  success: () => 'well',
  failure: () => {
    throw new Error('sick');
  },
  never: () => new Promise(() => {}),
} as const;

process.on('message', async ({ calls, end }: Order) => {
  const before = upstream.runs;
  upstream.body = BODIES[end];
  const pending = Array.from({ length: calls }, () =>
    upstream
      .call()
      .catch(({ code, message }: { code?: string; message: string }) => code ?? message),
  );
  if (end === 'never') {
    while (upstream.runs === before) await new Promise((resolve) => setImmediate(resolve));
  }
  const ends = end === 'never' ? [] : await Promise.all(pending);
  const transitions = telemetry.names.filter(
    (name) => name.startsWith('circuit_') && name !== 'circuit_rejected',
  );
  telemetry.clear();
  process.send?.({ runs: upstream.runs - before, ends, transitions } satisfies Report);
});

process.once('SIGTERM', async () => {
  await app.close();
  process.disconnect();
});

process.send?.('ready');
