import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { CmdxModule } from '../../../lib/index.js';
import { RedisStore } from '../../../lib/store/redis/index.js';
import { RecordingTelemetry } from '../../../lib/testing/index.js';
import { Upstream } from './upstream.js';

/**
 * Calls the upstream so many times at once, each of which succeeds, fails, or hangs until it is told
 * to fail.
 */
export type Order =
  { readonly calls: number; readonly end: 'success' | 'failure' | 'hang' } | 'fail those that hang';

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

function sick(): never {
  throw new Error('sick');
}

let goOn = (): void => {};
let hanging: readonly Promise<unknown>[] = [];

const BODIES = {
  success: () => 'well',
  failure: sick,
  hang: async () => {
    await new Promise<void>((resolve) => (goOn = resolve));
    sick();
  },
} as const;

function call(): Promise<unknown> {
  return upstream
    .call()
    .catch(({ code, message }: { code?: string; message: string }) => code ?? message);
}

/** @param calls those that have to end before this is told */
async function report(calls: readonly Promise<unknown>[], runs: number): Promise<void> {
  const ends = await Promise.all(calls);
  const transitions = telemetry.names.filter(
    (name) => name.startsWith('circuit_') && name !== 'circuit_rejected',
  );
  telemetry.clear();
  process.send?.({ runs: upstream.runs - runs, ends, transitions } satisfies Report);
}

process.on('message', async (order: Order) => {
  const before = upstream.runs;
  if (order === 'fail those that hang') {
    goOn();
    return report(hanging, before);
  }
  upstream.body = BODIES[order.end];
  const calls = Array.from({ length: order.calls }, call);
  if (order.end !== 'hang') return report(calls, before);
  hanging = calls;
  while (upstream.runs === before) await new Promise((resolve) => setImmediate(resolve));
  return report([], before);
});

process.once('SIGTERM', async () => {
  await app.close();
  process.disconnect();
});

process.send?.('ready');
