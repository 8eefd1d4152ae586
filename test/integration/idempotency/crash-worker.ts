import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { CmdxModule } from '../../../lib/index.js';
import { RedisStore } from '../../../lib/store/redis/index.js';
import { RecordingTelemetry } from '../../../lib/testing/index.js';
import { connected } from '../../support/connected.js';
import { type Method, Payments, type Point } from './crash-payments.js';

/** A process that works until the test kills, stops or closes it. */
export type Order =
  /** Calls a method, and keeps its body at a point until it is told to go on. */
  | { readonly call: Method; readonly key: string; readonly stayAt?: Point }
  | { readonly goOn: string };

export type Report =
  | { readonly reached: Point; readonly key: string }
  /** The signal of a body has aborted: with the name of the reason. */
  | { readonly aborted: string; readonly key: string }
  /** A call has ended: with its value, or the code of its error; and the events that it was told of. */
  | { readonly ended: unknown; readonly key: string; readonly events: readonly string[] };

const [storeUrl = '', effectsUrl = ''] = process.argv.slice(2);
const effects = new Redis(effectsUrl);
const store = new RedisStore({ url: storeUrl });
const telemetry = new RecordingTelemetry();

@Module({
  imports: [CmdxModule.forRoot({ store, telemetry: [telemetry], shutdownTimeout: '100ms' })],
  providers: [Payments, { provide: Redis, useValue: effects }],
})
class WorkerModule {}

const app = await NestFactory.createApplicationContext(WorkerModule, { logger: ['error'] });
const payments = app.get(Payments);
const stays = new Map<string, Point>();
const waiting = new Map<string, () => void>();

payments.reach = async (key, point) => {
  if (stays.get(key) !== point) return;
  payments.signals.get(key)?.addEventListener('abort', ({ target }) => {
    report({ aborted: (target as AbortSignal).reason.name, key });
  });
  report({ reached: point, key });
  await new Promise<void>((resolve) => waiting.set(key, resolve));
};

process.on('message', async (order: Order) => {
  if ('goOn' in order) return waiting.get(order.goOn)?.();
  const { call, key, stayAt } = order;
  if (stayAt) stays.set(key, stayAt);
  const ended: unknown = await payments[call](key).catch(({ code }: { code: string }) => code);
  const events = telemetry.events
    .filter(({ payload }) => 'idempotencyKey' in payload && payload.idempotencyKey.endsWith(key))
    .map(({ name }) => name);
  report({ ended, key, events });
});

function report(what: Report | 'ready'): void {
  process.send?.(what);
}

/** Ends by itself once nothing keeps it alive any more. */
process.once('SIGTERM', async () => {
  await app.close();
  await effects.quit();
  process.disconnect();
});

await connected(store);
report('ready');
