import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  CircuitBreaker,
  CircuitBreakers,
  type CmdxModuleOptions,
  currentInvocation,
  fail,
  IdempotentBy,
  input,
  InputSchema,
  type Invocation,
  LockWith,
  OutputSchema,
  RateLimit,
  resultOf,
  RetryOn,
  skip,
  SystemClock,
  type TelemetryEvent,
} from 'nestjs-cmdx';
import * as z from 'zod';
import {
  DUE,
  keysOf,
  LIMIT,
  type Order,
  orderOf,
  orderSchema,
  tracesOf,
} from '../../support/all-rings.js';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { bootOnRedis } from '../../support/on-redis.js';
import { startRedis } from '../../support/redis-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/time.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
refuseUnhandledRejections();

class Flaky extends Error {}

type Work = (order: Order) => unknown;

/** The same rings twice: one method calls the other, or itself. */
@Injectable()
class Ledger {
  outer: Work = () => 'outer';
  inner: Work = () => 'inner';
  readonly runs = { outer: 0, inner: 0 };

  @InputSchema(orderSchema)
  @RateLimit(input('payer'), { max: LIMIT, per: '1h' })
  @CircuitBreaker(input('bank'))
  @LockWith(input('account'), { wait: '10m' })
  @IdempotentBy(input('reference'), { onInProgress: 'wait', wait: '10m' })
  @RetryOn(Error, { limit: 2, delay: 0 })
  @OutputSchema(z.unknown())
  async book(order: Order): Promise<unknown> {
    this.runs.outer += 1;
    return this.outer(order);
  }

  @InputSchema(orderSchema)
  @RateLimit(input('payer'), { max: LIMIT, per: '1h' })
  @CircuitBreaker(input('bank'))
  @LockWith(input('account'), { wait: '10m' })
  @IdempotentBy(input('reference'), { onInProgress: 'wait', wait: '10m' })
  @RetryOn(Flaky, { limit: 1, delay: 0 })
  @OutputSchema(z.unknown())
  async post(order: Order): Promise<unknown> {
    this.runs.inner += 1;
    return this.inner(order);
  }
}

const order = orderOf('ada');
const OUTER = keysOf(order, 'Ledger.book');
const INNER = keysOf(order, 'Ledger.post');
/** Nobody sleeps for longer than no time at all. */
const realTime: CmdxModuleOptions = { clock: new SystemClock() };

async function start(options: CmdxModuleOptions = realTime) {
  const app = await boot({ providers: [Ledger] }, options);
  return { ...app, app, ledger: app.get(Ledger) };
}

/** The events of each task, apart. */
function byTask(events: readonly TelemetryEvent[]): Record<string, readonly string[]> {
  const tasks: Record<string, string[]> = {};
  for (const { task, name } of events) (tasks[task] ??= []).push(name);
  return tasks;
}

const IN = ['task_started', 'rate_limit_admitted', 'lock_acquired', 'idempotency_claimed'];
const RAN = [...IN, 'task_executed'];
const current = (): Invocation => {
  const invocation = currentInvocation();
  if (!invocation) throw new Error('there is no invocation here');
  return invocation;
};

describe('one method behind all rings calls another', () => {
  it('each has its own ids, lease, claim and sample, and both have one chain', async () => {
    const { app, ledger, cmdx, telemetry } = await start();
    const seen: Invocation[] = [];
    const inside: unknown[] = [];
    ledger.outer = async () => {
      const before = current();
      seen.push(before);
      const answer = await ledger.post(order);
      // Back from the nested call, this is ours again.
      expect(current()).toBe(before);
      return `outer of ${String(answer)}`;
    };
    ledger.inner = async () => {
      seen.push(current());
      inside.push(await tracesOf(app, OUTER), await tracesOf(app, INNER));
      return 'inner';
    };
    const result = await cmdx.execute(() => ledger.book(order));

    const [outer, inner] = seen as [Invocation, Invocation];
    expect(result).toMatchObject({ value: 'outer of inner', tid: outer.tid, cid: outer.cid });
    expect(outer).toMatchObject({ task: 'Ledger.book', root: true });
    expect(inner).toMatchObject({ task: 'Ledger.post', root: false, cid: outer.cid });
    expect(inner.tid).not.toBe(outer.tid);
    expect(inside).toMatchObject([
      { lease: outer.tid, claimedBy: outer.tid, claim: 'in_progress', calls: 0 },
      { lease: inner.tid, claimedBy: inner.tid, claim: 'in_progress', calls: 0 },
    ]);
    for (const keys of [OUTER, INNER]) {
      expect(await tracesOf(app, keys)).toMatchObject({
        quota: 1,
        calls: 1,
        failures: 0,
        lease: undefined,
        claim: 'done',
      });
    }
    expect(byTask(telemetry.events)).toEqual({ 'Ledger.book': RAN, 'Ledger.post': RAN });
    expect(telemetry.names).toEqual([...IN, ...RAN, 'task_executed']);
    expect(new Set(telemetry.events.map(({ cid }) => cid)).size).toBe(1);
    expect(currentInvocation()).toBeUndefined();
  });

  it('an error of the inner one is a failure of both, and resultOf tells the innermost', async () => {
    const { app, ledger, cmdx } = await start();
    const flaky = new Flaky();
    ledger.outer = () => ledger.post(order);
    ledger.inner = () => Promise.reject(flaky);
    const result = await cmdx.execute(() => ledger.book(order));

    expect(result).toMatchObject({ status: 'failed', task: 'Ledger.book', retries: 2 });
    expect(result.cause).toBe(flaky);
    // The last of three nested calls, of which each repeated its body once.
    expect(ledger.runs).toEqual({ outer: 3, inner: 6 });
    const innermost = resultOf(flaky);
    expect(innermost).toMatchObject({ task: 'Ledger.post', retries: 1, cid: result.cid });
    expect(innermost?.cause).toBe(flaky);
    // One sample of the outer one, however often it was repeated; three calls of the inner one.
    expect(await tracesOf(app, OUTER)).toMatchObject({ quota: 1, calls: 1, failures: 1 });
    expect(await tracesOf(app, INNER)).toMatchObject({ quota: 3, calls: 3, failures: 3 });
    for (const keys of [OUTER, INNER]) {
      expect(await tracesOf(app, keys)).toMatchObject({ lease: undefined, claim: undefined });
    }
  });

  it('what the repeated outer body calls is done once: the second time it is a duplicate', async () => {
    const { app, ledger, cmdx } = await start();
    const answers: unknown[] = [];
    ledger.outer = async () => {
      answers.push(await ledger.post(order));
      if (answers.length < 3) throw new Flaky();
      return 'at last';
    };
    ledger.inner = () => ({ posted: ledger.runs.inner });
    const result = await cmdx.execute(() => ledger.book(order));
    expect(result).toMatchObject({ value: 'at last', retries: 2 });
    expect(answers).toEqual([{ posted: 1 }, { posted: 1 }, { posted: 1 }]);
    expect(ledger.runs).toEqual({ outer: 3, inner: 1 });
    expect(await tracesOf(app, INNER)).toMatchObject({ quota: 3, calls: 1, failures: 0 });
  });

  it('a refusal of the inner one is no failure of the outer one, and not repeated, although Error is listed', async () => {
    const { app, ledger, cmdx, telemetry } = await start();
    await app.get(CircuitBreakers).forceOpen(INNER.circuit);
    ledger.outer = () => ledger.post(order);
    const result = await cmdx.execute(() => ledger.book(order));
    expect(result).toMatchObject({
      status: 'failed',
      task: 'Ledger.book',
      metadata: { code: 'circuit_open', circuitKey: INNER.circuit },
      retries: 0,
    });
    expect(resultOf(result.cause)).toMatchObject({ task: 'Ledger.post', cid: result.cid });
    expect(ledger.runs).toEqual({ outer: 1, inner: 0 });
    expect(await tracesOf(app, OUTER)).toMatchObject({
      calls: 0,
      lease: undefined,
      claim: undefined,
    });
    expect(byTask(telemetry.events)).toEqual({
      'Ledger.book': RAN,
      'Ledger.post': ['task_started', 'rate_limit_admitted', 'circuit_rejected', 'task_executed'],
    });
  });

  it.each([
    ['skip()', () => skip('nothing to post'), 'success', undefined],
    ['fail()', () => fail('no such account'), 'failed', 'Ledger.post'],
  ] as const)('%s ends the inner one only', async (_how, inner, status, failed) => {
    const { app, ledger, cmdx } = await start();
    ledger.outer = () => ledger.post(order);
    ledger.inner = inner;
    const result = await cmdx.execute(() => ledger.book(order));
    expect(result).toMatchObject({ status, task: 'Ledger.book', value: undefined });
    expect(resultOf(result.cause)?.task).toBe(failed);
    expect(ledger.runs).toEqual({ outer: 1, inner: 1 });
    expect(await tracesOf(app, INNER)).toMatchObject({ calls: 0, claim: undefined });
    expect(await tracesOf(app, OUTER)).toMatchObject({
      // What the outer one has returned is what its body made of it.
      calls: status === 'success' ? 1 : 0,
      claim: status === 'success' ? 'done' : undefined,
    });
  });

  it('an error that the outer body swallows is none of its own', async () => {
    const { app, ledger, cmdx } = await start();
    ledger.outer = () => ledger.post(order).catch(() => 'made do without');
    ledger.inner = () => Promise.reject(new Flaky());
    const result = await cmdx.execute(() => ledger.book(order));
    expect(result).toMatchObject({ status: 'success', value: 'made do without', retries: 0 });
    expect(await tracesOf(app, OUTER)).toMatchObject({ calls: 1, failures: 0, claim: 'done' });
    expect(await tracesOf(app, INNER)).toMatchObject({ calls: 1, failures: 1, claim: undefined });
  });
});

describe('a method behind all rings calls itself', () => {
  const level = (depth: number): Order =>
    orderOf('ada', { account: `account-${depth}`, reference: `reference-${depth}` });

  it('on other keys: one invocation each, one chain, and everything is given back', async () => {
    const { app, ledger, telemetry } = await start();
    const tids: string[] = [];
    ledger.outer = async ({ account }) => {
      tids.push(current().tid);
      const depth = Number(account.split('-')[1]);
      if (depth < 4) await ledger.book(level(depth + 1));
      expect(current()).toMatchObject({ tid: tids[depth], root: depth === 0 });
      return depth;
    };
    await expect(ledger.book(level(0))).resolves.toBe(0);
    expect(new Set(tids).size).toBe(5);
    expect(telemetry.of('task_executed').map(({ tid }) => tid)).toEqual(tids.toReversed());
    for (let depth = 0; depth < 5; depth += 1) {
      expect(await tracesOf(app, keysOf(level(depth), 'Ledger.book'))).toMatchObject({
        quota: 5,
        calls: 5,
        failures: 0,
        lease: undefined,
        claim: 'done',
        claimedBy: tids[depth],
      });
    }
  });

  it('on its own lock: it is refused at once, however patient it is', async () => {
    const { app, ledger } = await start({});
    ledger.outer = () => ledger.book({ ...order, reference: 'another' });
    await expect(ledger.book(order)).rejects.toMatchObject({ code: 'busy' });
    expect(ledger.runs.outer).toBe(1);
    expect(await tracesOf(app, OUTER)).toMatchObject({ quota: 2, calls: 0, lease: undefined });
  });

  it('on its own claim: the same', async () => {
    const { app, ledger } = await start({});
    ledger.outer = () => ledger.book({ ...order, account: 'another' });
    await expect(ledger.book(order)).rejects.toMatchObject({ code: 'in_progress' });
    expect(ledger.runs.outer).toBe(1);
    expect(await tracesOf(app, OUTER)).toMatchObject({
      calls: 0,
      lease: undefined,
      claim: undefined,
    });
  });

  it('behind a breaker of which it is the probe: the nested call is part of that probe, and no sample', async () => {
    const { app, ledger, telemetry } = await start();
    const state = async () => (await app.get(CircuitBreakers).inspect(OUTER.circuit))?.state;
    await app.store.set(OUTER.circuit, DUE, { ttl: '1h' });
    const other = orderOf('other', { bank: order.bank });
    const third = orderOf('third', { bank: order.bank });
    const seen: unknown[] = [];
    ledger.outer = async ({ account }) => {
      if (account === other.account) return 'nested';
      const answer = await ledger.book(other);
      // It has ended well, and the breaker still waits for the probe.
      seen.push(answer, await state());
      return 'well';
    };
    const probe = ledger.book(order);
    // Nobody else's call is let in meanwhile.
    await expect(ledger.book(third)).rejects.toMatchObject({ code: 'circuit_open' });
    await expect(probe).resolves.toBe('well');
    expect(seen).toEqual(['nested', 'half_open']);
    expect(await state()).toBe('closed');
    expect(telemetry.of('circuit_half_opened')).toHaveLength(1);
    expect(telemetry.of('circuit_closed').map(({ tid }) => tid)).toEqual([
      telemetry.events[0]?.tid,
    ]);
    await expect(ledger.book(third)).resolves.toBe('well');
  });
});

it('a nested call of a probe whose answer is lost takes nothing from the probe', async () => {
  const redis = await startRedis();
  const proxy = await TcpProxy.start(redis.port);
  try {
    const here = await bootOnRedis(proxy.url, [Ledger], { storeTimeout: '300ms' });
    const there = await bootOnRedis(redis.url, [Ledger]);
    const ledger = here.get(Ledger);
    const other = orderOf('other', { bank: order.bank });
    const { lock } = keysOf(other, 'Ledger.book');
    const door = new Door();
    await ledger.book(orderOf('warm'));
    await there.store.set(OUTER.circuit, DUE, { ttl: '1h' });
    ledger.outer = async ({ account }) => {
      if (account === other.account) return 'nested';
      proxy.loseReplyOf(1, { andRefuse: true });
      await expect(ledger.book(other)).rejects.toMatchObject({ code: 'store_unavailable' });
      expect(await there.store.get(lock)).toBeDefined();
      proxy.restore();
      await door.pass();
      return 'well';
    };
    const probe = ledger.book(order);
    await until(() => door.inside === 1, 'the answer to be lost');
    // It was granted all the same, and what it was granted is given back in the background.
    await until(async () => (await there.store.get(lock)) === undefined, 'the lease to be free');
    const third = there.get(Ledger).book(orderOf('third', { bank: order.bank }));
    await expect(third).rejects.toMatchObject({ code: 'circuit_open' });
    door.open();
    await expect(probe).resolves.toBe('well');
    expect(await there.get(CircuitBreakers).inspect(OUTER.circuit)).toMatchObject({
      state: 'closed',
    });
    await Promise.all([here.close(), there.close()]);
  } finally {
    await proxy.stop();
    await redis.stop();
  }
});

describe('many calls at once, each of which calls another', () => {
  const CALLS = 60;

  async function interleave(app: Awaited<ReturnType<typeof start>>['app']): Promise<void> {
    const ledger = app.get(Ledger);
    const flaky = new Map<string, Flaky>();
    const wander = async (who: string): Promise<void> => {
      const { tid, cid } = current();
      for (let step = 0; step < 3; step += 1) {
        await sleep(Math.random() * 4);
        expect(current()).toMatchObject({ tid, cid });
        expect(current().args).toMatchObject([{ payer: who }]);
      }
    };
    const chains = new Map<string, string>();
    ledger.outer = async (each) => {
      await wander(each.payer);
      chains.set(each.payer, current().cid);
      const answer = await ledger.post(each);
      await wander(each.payer);
      return `${String(answer)}, booked`;
    };
    ledger.inner = async (each) => {
      await wander(each.payer);
      expect(current().cid).toBe(chains.get(each.payer));
      const number = Number(each.payer.split('-')[1]);
      if (number % 3 === 1) skip(`nothing for ${each.payer}`);
      if (number % 3 === 2) {
        const error = new Flaky(each.payer);
        flaky.set(each.payer, error);
        throw error;
      }
      return each.payer;
    };
    const orders = Array.from({ length: CALLS }, (_, number) => orderOf(`payer-${number}`));
    const results = await Promise.all(
      orders.map((each) => app.cmdx.execute(() => ledger.book(each))),
    );

    expect(new Set(results.map(({ cid }) => cid)).size).toBe(CALLS);
    for (const [number, result] of results.entries()) {
      const payer = `payer-${number}`;
      expect(result).toMatchObject({ task: 'Ledger.book', cid: chains.get(payer) });
      if (number % 3 === 2) {
        expect(result).toMatchObject({ status: 'failed', retries: 2 });
        expect(result.cause).toBe(flaky.get(payer));
        expect(resultOf(result.cause)).toMatchObject({
          task: 'Ledger.post',
          retries: 1,
          cid: result.cid,
        });
      } else {
        expect(result).toMatchObject({
          status: 'success',
          value: number % 3 === 1 ? 'undefined, booked' : `${payer}, booked`,
          retries: 0,
        });
      }
      const failed = number % 3 === 2;
      expect(await tracesOf(app, keysOf(orderOf(payer), 'Ledger.book'))).toMatchObject({
        quota: 1,
        calls: 1,
        failures: failed ? 1 : 0,
        lease: undefined,
        claim: failed ? undefined : 'done',
      });
    }
    // Every event belongs to a chain that there is, and each run has begun and ended once.
    const cids = new Set(chains.values());
    const lives = new Map<string, string[]>();
    for (const { tid, cid, name } of app.telemetry.events) {
      expect(cids.has(cid)).toBe(true);
      lives.set(tid, [...(lives.get(tid) ?? []), name]);
    }
    for (const names of lives.values()) {
      expect(names[0]).toBe('task_started');
      expect(names.at(-1)).toBe('task_executed');
      expect(names.filter((name) => name === 'lock_acquired').length).toBe(1);
    }
    expect(currentInvocation()).toBeUndefined();
  }

  it('in memory: nothing of one is seen in another', async () => {
    const { app } = await start();
    await interleave(app);
  });

  it('on Redis: neither', async () => {
    const redis = await startRedis();
    try {
      const app = await bootOnRedis(redis.url, [Ledger]);
      await interleave(app);
      await app.close();
    } finally {
      await redis.stop();
    }
  });
});

it('nothing that a body has left behind belongs to its invocation any more', async () => {
  const { ledger, telemetry } = await start();
  let late: Promise<unknown> = Promise.resolve();
  const seen: unknown[] = [];
  ledger.outer = () => {
    seen.push(current().lock);
    late = sleep(10).then(() => {
      seen.push(currentInvocation());
      return ledger.post(order);
    });
    return 'done';
  };
  await ledger.book(order);
  await late;
  expect(seen).toEqual([{ key: OUTER.lock }, undefined]);
  const [book, post] = telemetry.of('task_started');
  expect(post).toMatchObject({ task: 'Ledger.post', root: true });
  expect(post?.cid).not.toBe(book?.cid);
});
