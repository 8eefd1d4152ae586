import { Injectable } from '@nestjs/common';
import {
  CircuitBreaker,
  CircuitBreakers,
  circuitText,
  type CmdxModuleOptions,
  currentInvocation,
  IdempotencyRecords,
  IdempotentBy,
  input,
  InputSchema,
  LockWith,
  OutputSchema,
  RateLimit,
  RetryOn,
  SystemClock,
} from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import type { ManualClock } from 'nestjs-cmdx/testing';
import * as z from 'zod';
import { type Application, boot } from './application.js';

/** Each ring has a key of its own, so that each can be made to refuse, or be blank, by itself. */
export const orderSchema = z.object({
  payer: z.string(),
  bank: z.string(),
  account: z.string(),
  reference: z.unknown(),
  amount: z.number().positive(),
});
export type Order = z.output<typeof orderSchema>;

export const receiptSchema = z.object({ receipt: z.string() });
export type Receipt = z.output<typeof receiptSchema>;

/** An error that no retry lists, and that the breaker counts. */
export class Unlisted extends Error {}
/** An error of which the breaker is told that it says nothing. */
export class Ignored extends Error {}

export const LIMIT = 5;
export const RETRIES = 3;

/** A method behind every ring there is. */
@Injectable()
export class Payments {
  /** How often the body has begun. */
  runs = 0;
  /** What it does, told which attempt of its invocation it is. */
  body: (attempt: number, order: Order) => unknown = () => ({ receipt: 'rc_1' });

  readonly #attempts = new WeakMap<object, number>();

  @InputSchema(orderSchema)
  @RateLimit(input('payer'), { max: LIMIT, per: '1m' })
  @CircuitBreaker(input('bank'), {
    ignore: Ignored,
    failOn: (error) => (error as { readonly counts?: boolean }).counts === true,
  })
  @LockWith(input('account'))
  @IdempotentBy((order: Order) => order.reference as string, {
    fingerprint: (order: Order) => order.amount,
  })
  @RetryOn((error) => !(error instanceof Unlisted), { limit: RETRIES, delay: 0 })
  @OutputSchema(receiptSchema)
  async pay(order: Order): Promise<Receipt> {
    this.runs += 1;
    const invocation = currentInvocation() as object;
    const attempt = (this.#attempts.get(invocation) ?? 0) + 1;
    this.#attempts.set(invocation, attempt);
    return this.body(attempt, order) as Promise<Receipt>;
  }

  @LockWith(input('account'))
  async post(_entry: { readonly account: string }): Promise<string> {
    return 'posted';
  }

  @InputSchema(receiptSchema)
  async print(receipt: Receipt): Promise<string> {
    return receipt.receipt;
  }

  @OutputSchema(z.number())
  async count(): Promise<number> {
    return 'many' as never;
  }
}

/** The store keys of an order's rings. */
export function keysOf({ payer, bank, account, reference }: Order, task = 'Payments.pay') {
  return {
    rateLimit: `cmdx:rl:${task}:${payer}`,
    circuit: `cmdx:cb:${task}:${bank}`,
    lock: `cmdx:lock:${task}:${account}`,
    claim: `cmdx:idem:${task}:${String(reference)}`,
  };
}

/** An order of which nothing is known yet. */
export function orderOf(name: string, changes: Partial<Order> = {}): Order {
  return { payer: name, bank: name, account: name, reference: name, amount: 5, ...changes };
}

/** What stands in the store for an order. */
export async function tracesOf(app: Pick<Application, 'get' | 'store'>, keys: Keys) {
  const circuit = await app.get(CircuitBreakers).inspect(keys.circuit);
  const claim = await app.get(IdempotencyRecords).inspect(keys.claim);
  return {
    /** Starts that the rate limit has counted. */
    quota: Number((await app.store.get(keys.rateLimit)) ?? 0),
    circuit: circuit?.state ?? 'closed',
    calls: circuit?.calls ?? 0,
    failures: circuit?.failures ?? 0,
    lease: await app.store.get(keys.lock),
    claim: claim?.state,
    claimedBy: claim?.tid,
  };
}

export type Keys = ReturnType<typeof keysOf>;

/** A breaker whose time of being open is over: the next call is a probe. */
export const DUE = circuitText({
  state: 'open',
  epoch: 1,
  openUntil: 0,
  opens: 1,
  successes: 0,
  permits: [],
  buckets: [],
});

/** A half-open breaker whose only permit somebody else has. */
export const PROBED = circuitText({
  state: 'half_open',
  epoch: 1,
  openUntil: 0,
  opens: 1,
  successes: 0,
  permits: [{ token: 'somebody', deadline: Number.MAX_SAFE_INTEGER }],
  buckets: [],
});

/** Boots on Redis in real time, or in memory with a clock that stands still. */
export function bootRings(
  providers: NonNullable<Parameters<typeof boot>[0]['providers']>,
  redisUrl: string | undefined,
  options: CmdxModuleOptions = {},
): Promise<Application> {
  return redisUrl === undefined
    ? boot({ providers }, options)
    : boot(
        { providers },
        { clock: new SystemClock(), store: new RedisStore({ url: redisUrl }), ...options },
      );
}

/** Awaits a call whose sleeps end only when the clock is moved. @throws Error when it does not help */
export async function drive<T>(clock: ManualClock, call: Promise<T>): Promise<T> {
  const progress = { settled: false };
  const end = (): void => void (progress.settled = true);
  call.then(end, end);
  for (let steps = 0; !progress.settled; steps += 1) {
    if (steps > 10_000) throw new Error('the call does not end, however far the clock is moved');
    await clock.advance('10ms');
  }
  return call;
}
