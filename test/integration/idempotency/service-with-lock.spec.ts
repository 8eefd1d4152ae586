import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { arg, currentInvocation, IdempotentBy, LockWith, RateLimit } from 'nestjs-cmdx';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { leaveClaimOfTheDead } from '../../support/dead-owner.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

const BOOM = new Error('boom');

/** What a body does between its start and its end. */
type Work = () => unknown;
const atOnce: Work = () => undefined;

@Injectable()
class Webhooks {
  runs = 0;
  holding: unknown[] = [];

  @RateLimit(arg(0), { max: 5, per: 3600 })
  @LockWith(arg(0), { wait: '1m', ttl: '5m' })
  @IdempotentBy(arg(0))
  async deliver(_id: string, work: Work = atOnce): Promise<number> {
    return this.#run(work);
  }

  @RateLimit(arg(0), { max: 5, per: 3600 })
  @LockWith(arg(1), { ttl: '5m' })
  @IdempotentBy(arg(0), {
    fingerprint: (_id: string, _lock: string, payload?: unknown) => payload,
  })
  async deliverTo(_id: string, _lock: string, _payload?: unknown, work = atOnce): Promise<number> {
    return this.#run(work);
  }

  @LockWith(arg(1), { ttl: '5m' })
  @IdempotentBy(async (id: string) => id, { onInProgress: 'wait', wait: '1m' })
  async deliverLater(_id: string, _lock: string, work: Work = atOnce): Promise<number> {
    return this.#run(work);
  }

  @LockWith(arg(1), { wait: '1m' })
  @IdempotentBy(arg(0), { onInProgress: 'wait', wait: 5 })
  async deliverInTurn(_id: string, _lock: string, work: Work = atOnce): Promise<number> {
    return this.#run(work);
  }

  @LockWith(arg(0))
  @IdempotentBy(async () => {
    throw BOOM;
  })
  async unkeyed(_lock: string): Promise<number> {
    return this.#run(atOnce);
  }

  @IdempotentBy(arg(0), { name: 'work', ttl: 60 })
  async outer(id: string): Promise<number> {
    return this.inner(id);
  }

  @LockWith('inner', { wait: '1m' })
  @IdempotentBy(arg(0), { name: 'work', ttl: 60, onInProgress: 'wait' })
  async inner(_id: string, work: Work = atOnce): Promise<number> {
    return this.#run(work);
  }

  async #run(work: Work): Promise<number> {
    this.runs += 1;
    const run = this.runs;
    this.holding.push(currentInvocation()?.lock?.key);
    await work();
    return run;
  }
}

async function bootWebhooks() {
  const application = await boot({ providers: [Webhooks] });
  return { ...application, webhooks: application.get(Webhooks) };
}

/** The events of one call, and none of another's. */
function eventsOf({ telemetry }: Pick<Application, 'telemetry'>, call: number): readonly string[] {
  const tids = telemetry.of('task_started').map(({ tid }) => tid);
  return telemetry.events.filter(({ tid }) => tid === tids[call]).map(({ name }) => name);
}

describe('What does a second delivery get, where a lock stands on the same key?', () => {
  it('it waits on the lock, finds the work done, and is answered with it', async () => {
    const application = await bootWebhooks();
    const { webhooks, clock, store } = application;
    const door = new Door();
    const first = webhooks.deliver('1', () => door.pass());
    const second = webhooks.deliver('1');
    await clock.advance('20s');
    expect(eventsOf(application, 1)).toEqual(['task_started', 'rate_limit_admitted']);
    door.open();
    await expect(first).resolves.toBe(1);
    await clock.advance('1s');
    await expect(second).resolves.toBe(1);
    expect(webhooks.runs).toBe(1);
    expect(webhooks.holding).toEqual(['cmdx:lock:Webhooks.deliver:1']);
    expect(eventsOf(application, 0)).toEqual([
      'task_started',
      'rate_limit_admitted',
      'lock_acquired',
      'idempotency_claimed',
      'task_executed',
    ]);
    expect(eventsOf(application, 1)).toEqual([
      'task_started',
      'rate_limit_admitted',
      'lock_acquired',
      'idempotency_duplicate',
      'task_executed',
    ]);
    expect(await store.get('cmdx:rl:Webhooks.deliver:1')).toBe('2');
    expect(await store.get('cmdx:lock:Webhooks.deliver:1')).toBeUndefined();
  });

  it('a run of its own, when the first throws', async () => {
    const { webhooks, clock } = await bootWebhooks();
    const door = new Door();
    const first = webhooks.deliver('1', async () => {
      await door.pass();
      throw BOOM;
    });
    const others = [webhooks.deliver('1'), webhooks.deliver('1')];
    await clock.advance('1s');
    door.open();
    await expect(first).rejects.toBe(BOOM);
    await clock.advance('2s');
    await expect(Promise.all(others)).resolves.toEqual([2, 2]);
  });
});

describe('What does a refused call keep?', () => {
  const IDEM = 'cmdx:idem:Webhooks.deliverTo:1';
  const LOCK_B = 'cmdx:lock:Webhooks.deliverTo:b';

  /** The first delivery runs under lock a; what is refused next comes under lock b. */
  async function withFirst() {
    const application = await bootWebhooks();
    const door = new Door();
    const first = application.webhooks.deliverTo('1', 'a', 'payload', () => door.pass());
    const claim = await application.store.get(IDEM);
    return { ...application, door, first, claim };
  }

  it('nothing but its charge, when the lock is busy', async () => {
    const { webhooks, store, door, first } = await withFirst();
    await expect(webhooks.deliverTo('2', 'a')).rejects.toMatchObject({ code: 'busy' });
    expect(await store.get('cmdx:idem:Webhooks.deliverTo:2')).toBeUndefined();
    expect(await store.get('cmdx:rl:Webhooks.deliverTo:2')).toBe('1');
    door.open();
    await first;
  });

  it('nothing at all, when the limit is full', async () => {
    const { webhooks, store, door, first } = await withFirst();
    door.open();
    await first;
    for (const lock of ['b', 'c', 'd', 'e']) await webhooks.deliverTo('1', lock, 'payload');
    await store.forget(IDEM);
    await expect(webhooks.deliverTo('1', 'b')).rejects.toMatchObject({ code: 'rate_limited' });
    expect(await store.get(LOCK_B)).toBeUndefined();
    expect(await store.get(IDEM)).toBeUndefined();
    expect(webhooks.runs).toBe(1);
  });

  it.each([
    ['in_progress', 'payload'],
    ['payload_mismatch', 'another'],
  ])('no lock, when the claim answers %s', async (code, payload) => {
    const { webhooks, store, door, first, claim, telemetry } = await withFirst();
    telemetry.clear();
    await expect(webhooks.deliverTo('1', 'b', payload)).rejects.toMatchObject({ code });
    expect(telemetry.names.slice(1, 3)).toEqual(['rate_limit_admitted', 'lock_acquired']);
    expect(await store.get(LOCK_B)).toBeUndefined();
    expect(await store.get(IDEM)).toBe(claim);
    door.open();
    await expect(first).resolves.toBe(1);
    await expect(webhooks.deliverTo('1', 'b', 'payload')).resolves.toBe(1);
    expect(await store.get(LOCK_B)).toBeUndefined();
  });

  it('no lock, when the run before was abandoned', async () => {
    const { webhooks, store, clock } = await bootWebhooks();
    await leaveClaimOfTheDead(store, IDEM, { leaseMs: 1_000 });
    await clock.advance('1s');
    await expect(webhooks.deliverTo('1', 'b')).rejects.toMatchObject({ code: 'abandoned' });
    expect(await store.get(LOCK_B)).toBeUndefined();
  });

  it('no lock, when the key of the claim cannot be told', async () => {
    const { webhooks, store, telemetry } = await bootWebhooks();
    await expect(webhooks.unkeyed('b')).rejects.toBe(BOOM);
    expect(telemetry.names).toContain('lock_acquired');
    expect(await store.get('cmdx:lock:Webhooks.unkeyed:b')).toBeUndefined();
  });
});

describe('What does a call hold that waits for the outcome of another?', () => {
  it('not even the lock that an earlier trip to the store has granted', async () => {
    const application = await bootWebhooks();
    const { webhooks, clock, store } = application;
    const door = new Door();
    const first = webhooks.deliverLater('1', 'a', () => door.pass());
    await clock.advance('10ms');
    const second = webhooks.deliverLater('1', 'b');
    await clock.advance('5s');
    expect(await store.get('cmdx:lock:Webhooks.deliverLater:a')).toBeDefined();
    expect(await store.get('cmdx:lock:Webhooks.deliverLater:b')).toBeUndefined();
    await expect(webhooks.deliverLater('2', 'b')).resolves.toBe(2);
    door.open();
    await expect(first).resolves.toBe(1);
    await clock.advance('1s');
    await expect(second).resolves.toBe(1);
    expect(eventsOf(application, 1)).toEqual([
      'task_started',
      'lock_acquired',
      'idempotency_duplicate',
      'task_executed',
    ]);
    expect(await store.get('cmdx:lock:Webhooks.deliverLater:b')).toBeUndefined();
  });

  it('and it runs under that lock, should the first fail', async () => {
    const application = await bootWebhooks();
    const { webhooks, clock, store } = application;
    const door = new Door();
    const first = webhooks.deliverLater('1', 'a', async () => {
      await door.pass();
      throw BOOM;
    });
    await clock.advance('10ms');
    let heldInside: unknown;
    const second = webhooks.deliverLater('1', 'b', async () => {
      heldInside = await store.get('cmdx:lock:Webhooks.deliverLater:b');
    });
    await clock.advance('5s');
    door.open();
    await expect(first).rejects.toBe(BOOM);
    await clock.advance('1s');
    await expect(second).resolves.toBe(2);
    const tid = application.telemetry.of('idempotency_claimed').at(-1)?.tid;
    expect(heldInside).toBe(tid);
    expect(webhooks.holding).toEqual([
      'cmdx:lock:Webhooks.deliverLater:a',
      'cmdx:lock:Webhooks.deliverLater:b',
    ]);
    expect(eventsOf(application, 1)).toEqual([
      'task_started',
      'lock_acquired',
      'idempotency_claimed',
      'task_executed',
    ]);
  });

  it('nothing to the end, and is told what let it pass before what did not', async () => {
    const application = await bootWebhooks();
    const { webhooks, clock, store } = application;
    const doors = { 1: new Door(), 2: new Door() };
    const others = [
      webhooks.deliverInTurn('1', 'a', () => doors[1].pass()),
      webhooks.deliverInTurn('2', 'b', () => doors[2].pass()),
    ];
    const call = webhooks.deliverInTurn('1', 'b').catch((error: unknown) => error);
    await clock.advance('1s');
    doors[2].open();
    await clock.advance('5s');
    expect(await call).toMatchObject({ code: 'in_progress' });
    expect(eventsOf(application, 2)).toEqual([
      'task_started',
      'lock_acquired',
      'idempotency_in_progress',
      'task_executed',
    ]);
    expect(await store.get('cmdx:lock:Webhooks.deliverInTurn:b')).toBeUndefined();
    doors[1].open();
    await Promise.all(others);
  });

  it('no patience for a claim of its own chain, met after it has waited for a lock', async () => {
    const { webhooks, clock } = await bootWebhooks();
    const door = new Door();
    const other = webhooks.inner('other', () => door.pass());
    const call = webhooks.outer('1').catch((error: unknown) => ({ error, at: clock.now() }));
    await clock.advance('1s');
    door.open();
    await other;
    await clock.advance('1s');
    const ended = await Promise.race([call, clock.advance('1s')]);
    expect(ended).toMatchObject({ error: { code: 'in_progress' } });
  });
});
