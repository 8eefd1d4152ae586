import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { arg, CircuitBreaker, Cmdx, CmdxModule, LockWith, Telemetry } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import {
  BODIES,
  type HalfOpenOrder,
  type HalfOpenStand,
  OPEN_MS,
  PERMITS,
} from './half-open-order.js';

const [, , storeUrl = '', witnessUrl = ''] = process.argv;
/** Bodies count themselves on a connection that nobody disturbs. */
const witness = new Redis(witnessUrl);

const FAILURES = 3;
const BREAKER = {
  minimumCalls: FAILURES,
  openFor: `${OPEN_MS}ms`,
  permits: PERMITS,
  probeTimeout: '2m',
} as const;

let body = async (): Promise<void> => {};

@Injectable()
class Upstream {
  @CircuitBreaker('upstream', BREAKER)
  async probe(_key: string): Promise<void> {
    await body();
  }

  @CircuitBreaker('upstream', BREAKER)
  @LockWith(arg(0), { wait: '1m' })
  async probeLocked(_key: string): Promise<void> {
    await body();
  }
}

@Module({
  imports: [
    // A loaded machine may be slow; here only the count matters.
    CmdxModule.forRoot({ store: new RedisStore({ url: storeUrl }), storeTimeout: '20s' }),
  ],
  providers: [Upstream],
})
class WorkerModule {}

const app = await NestFactory.createApplicationContext(WorkerModule, { logger: ['error'] });
const upstream = app.get(Upstream);
const cmdx = app.get(Cmdx);

const transitions: Record<string, number> = {};
for (const name of ['circuit_opened', 'circuit_half_opened', 'circuit_closed'] as const) {
  app.get(Telemetry).subscribe(name, () => {
    transitions[name] = (transitions[name] ?? 0) + 1;
  });
}

let release = (): void => {};
let ended: Promise<unknown> = Promise.resolve();
let inside = 0;
let outcomes: Record<string, number> = {};

function tell(): void {
  process.send?.({ inside, outcomes, transitions } satisfies HalfOpenStand);
}

async function trip(): Promise<void> {
  body = async () => {
    throw new Error('The upstream is down.');
  };
  for (let call = 0; call < FAILURES; call++) await upstream.probe('trip').catch(() => undefined);
}

/** Tells how the callers stand when each of them is in a body or has its answer. */
function storm({ method, key, callers }: HalfOpenOrder & { readonly task: 'storm' }): void {
  outcomes = {};
  const released = new Promise<void>((resolve) => (release = resolve));
  const tellIfAllStand = (): void => {
    const done = Object.values(outcomes).reduce((sum, count) => sum + count, 0);
    if (done + inside === callers) tell();
  };
  body = async () => {
    await witness.incr(BODIES);
    inside += 1;
    tellIfAllStand();
    await released;
    inside -= 1;
  };
  const call = async (): Promise<void> => {
    const { status, metadata } = await cmdx.execute(() => upstream[method](key));
    const name = status === 'success' ? status : String(metadata.code);
    outcomes[name] = (outcomes[name] ?? 0) + 1;
    if (name !== 'success') tellIfAllStand();
  };
  ended = Promise.all(Array.from({ length: callers }, call));
}

process.on('message', async (order: HalfOpenOrder) => {
  if (order.task === 'storm') return storm(order);
  if (order.task === 'trip') await trip();
  else release();
  await ended;
  tell();
});

process.once('SIGTERM', async () => {
  release();
  await app.close();
  witness.disconnect();
  process.disconnect();
});
process.send?.('started');
