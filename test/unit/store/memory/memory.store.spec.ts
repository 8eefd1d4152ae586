import { describe, expect, it } from '@jest/globals';
import {
  Deadline,
  type EnterReply,
  type EnterStep,
  isStoreError,
  MemoryStore,
  type Store,
} from 'nestjs-cmdx';
import { ManualClock } from 'nestjs-cmdx/testing';
import { isDefinitionError } from '../../../../lib/errors/definition.error.js';

describe('are expired keys dropped without a new hit?', () => {
  it('100,000 of them are gone after one sweep', async () => {
    const { store, clock } = open({ maxKeys: 200_000 });
    for (let key = 0; key < 50_000; key++) {
      enter(store, window(`w${key}`, 5, 1_000), lease(`l${key}`, 't', 1_000));
    }
    enter(store, lease('lives on', 't', 60_000));
    expect(store.size).toBe(100_001);
    await clock.advance('10s');
    expect(store.size).toBe(1);
    await clock.advance('60s');
    expect(store.size).toBe(0);
    await store.close();
  });

  it('an empty store has no timer, and a store in use none per key', async () => {
    const { store, clock } = open();
    expect(clock.pending).toBe(0);
    for (let key = 0; key < 1_000; key++) enter(store, window(`w${key}`, 5, 1_000));
    expect(clock.pending).toBe(1);
    await clock.advance('10s');
    expect(clock.pending).toBe(0);
    enter(store, window('again', 5, 1_000));
    expect(clock.pending).toBe(1);
    await store.close();
    expect(clock.pending).toBe(0);
  });

  it('its sweeper does not keep the process alive', async () => {
    const before = timers();
    const store = new MemoryStore();
    enter(store, window('w', 5, 60_000));
    expect(timers()).toBe(before);
    await store.close();
  });
});

describe('does it stay within its bounds?', () => {
  it('200,000 random keys never pass the cap', async () => {
    const { store, clock } = open({ maxKeys: 10_000 });
    let most = 0;
    for (let hit = 0; hit < 200_000; hit++) {
      const key = `client-${hit}-${Math.random()}`;
      enter(store, hit % 2 === 0 ? window(key, 5, 60_000) : bucket(key, 5_000_000, 1_000_000));
      if (store.size > most) most = store.size;
      if (hit % 10_000 === 0) await clock.advance('1s');
    }
    expect(most).toBe(10_000);
  }, 30_000);

  it('nor the bytes, whatever the length of the keys', () => {
    const { store } = open({ maxKeys: 1_000_000, maxBytes: 100_000 });
    for (let hit = 0; hit < 5_000; hit++)
      enter(store, window('k'.repeat(hit % 900) + hit, 5, 60_000));
    expect(store.size).toBeLessThan(100_000 / 120);
    expect(store.size).toBeGreaterThan(20);
  });

  it('a value that grows has to fit too', async () => {
    const { store } = open({ maxBytes: 2_000 });
    await store.set('text', 'short', { ttl: 60 });
    await expect(store.set('text', 'x'.repeat(2_000), { ttl: 60 })).rejects.toMatchObject({
      reason: 'full',
    });
    await expect(store.get('text')).resolves.toBe('short');
  });

  it.each([['maxKeys'], ['maxBytes']])('%s must be a positive whole number', (name) => {
    for (const value of [0, -1, 1.5, Number.NaN, Infinity, '10', null]) {
      let thrown: unknown;
      const make = (): MemoryStore => new MemoryStore({ [name]: value });
      try {
        make();
      } catch (error) {
        thrown = error;
      }
      expect([value, isDefinitionError(thrown)]).toEqual([value, value !== null]);
      if (value === null) continue;
      expect((thrown as Error).message).toContain(
        `MemoryStore option "${name}": expected a positive whole number, got `,
      );
    }
  });
});

describe('who has to go when it is full?', () => {
  it('first what has expired', async () => {
    const { store, clock } = open({ maxKeys: 4 });
    enter(store, window('fresh', 10, 60_000));
    enter(store, lease('old lease', 't', 1_000), window('old window', 10, 1_000));
    enter(store, lease('lease', 't', 60_000));
    await clock.advance('2s');
    enter(store, window('new 1', 10, 60_000));
    enter(store, window('new 2', 10, 60_000));
    expect(await left(store, 'fresh', 'lease', 'new 1', 'new 2')).toEqual([
      'fresh',
      'lease',
      'new 1',
      'new 2',
    ]);
  });

  it('then the least-filled counters, one by one', async () => {
    const { store } = open({ maxKeys: 5 });
    fill(store, 'nearly full', 9);
    fill(store, 'half', 5);
    fill(store, 'hardly', 1);
    enter(store, bucket('bucket at 0.3', 10, 3));
    enter(store, lease('lease', 't', 60_000));
    // Each new counter is full, so that it never is the next to go itself.
    enter(store, window('new 1', 1, 60_000));
    expect(await left(store, 'nearly full', 'half', 'bucket at 0.3', 'hardly')).not.toContain(
      'hardly',
    );
    enter(store, window('new 2', 1, 60_000));
    expect(await left(store, 'nearly full', 'half', 'bucket at 0.3')).toEqual([
      'nearly full',
      'half',
    ]);
    enter(store, window('new 3', 1, 60_000));
    expect(await left(store, 'nearly full', 'half', 'lease')).toEqual(['nearly full', 'lease']);
  });

  it('a counter that denies everything may go like any other', () => {
    const { store } = open({ maxKeys: 10 });
    for (let hit = 0; hit < 100; hit++) enter(store, window(`w${hit}`, 0, 60_000));
    expect(store.size).toBe(10);
  });

  it('never a lease, nor a text: then the store is full, and says so', async () => {
    const { store, clock } = open({ maxKeys: 3 });
    enter(store, lease('a', 't', 60_000), lease('b', 't', 60_000));
    await store.set('text', 'x', { ttl: 60 });
    for (const step of [window('w', 5, 1_000), bucket('x', 5, 1), lease('c', 't', 1_000)]) {
      expect(reasonOf(() => enter(store, step))).toBe('full');
    }
    expect(await left(store, 'a', 'b', 'text')).toEqual(['a', 'b', 'text']);
    // What is held can still be used and given back.
    expect(enter(store, lease('a', 'other', 1_000))[0]).toMatchObject({ holder: 't' });
    store.leave([{ kind: 'release', key: 'a', token: 't', ttlMs: 60_000 }]);
    expect(enter(store, window('w', 5, 1_000))[0]).toMatchObject({ count: 1 });
    await clock.advance('61s');
    expect(enter(store, lease('c', 't', 1_000))[0]).toMatchObject({ admitted: true });
  });

  it('a trip that finds no room gives back the leases it took', async () => {
    const { store } = open({ maxKeys: 2 });
    enter(store, lease('kept', 't', 60_000));
    expect(
      reasonOf(() => enter(store, lease('taken', 't', 60_000), lease('no room', 't', 60_000))),
    ).toBe('full');
    expect(await left(store, 'kept', 'taken', 'no room')).toEqual(['kept']);
  });
});

describe('what does a closed store do?', () => {
  it('it has no timer, and still lets go of what is held', async () => {
    const { store, clock } = open();
    enter(store, lease('a', 't', 60_000));
    await store.close();
    expect(clock.pending).toBe(0);
    expect(store.leave([{ kind: 'release', key: 'a', token: 't', ttlMs: 1 }])).toEqual([
      { kind: 'release', released: true },
    ]);
  });
});

function open(options?: ConstructorParameters<typeof MemoryStore>[0]) {
  const clock = new ManualClock(1_000_000);
  const store = new MemoryStore(options);
  store.useClock(clock);
  return { store, clock };
}

function enter(store: Store, ...steps: EnterStep[]): EnterReply[] {
  // The memory store answers at once.
  return store.enter(steps, Deadline.after(60_000)) as EnterReply[];
}

function window(key: string, max: number, windowMs: number): EnterStep {
  return { kind: 'fixed_window', key, max, windowMs };
}

function bucket(key: string, capacityUs: number, costUs: number): EnterStep {
  // A unit is a second, so that nothing drains meanwhile.
  return { kind: 'leaky_bucket', key, capacityUs: capacityUs * 1e6, costUs: costUs * 1e6 };
}

function lease(key: string, token: string, ttlMs: number): EnterStep {
  return { kind: 'lease', key, token, ttlMs };
}

function fill(store: MemoryStore, key: string, hits: number): void {
  for (let hit = 0; hit < hits; hit++) enter(store, window(key, 10, 60_000));
}

/** Which of the keys are still there. */
async function left(store: MemoryStore, ...keys: string[]): Promise<string[]> {
  const values = await Promise.all(keys.map((key) => store.get(key)));
  return keys.filter((_, position) => values[position] !== undefined);
}

function reasonOf(fn: () => unknown): string {
  try {
    fn();
  } catch (error) {
    if (isStoreError(error)) return error.reason;
    throw error;
  }
  throw new Error('expected a StoreError, got none');
}

function timers(): number {
  return process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
}
