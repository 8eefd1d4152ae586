import { describe, expect, it } from '@jest/globals';
import { Deadline, type EnterStep, MemoryStore } from 'nestjs-cmdx';

const deadline = Deadline.after(60_000);
const TIMES = 10_000;

describe('does one busy key cost the same in a large store?', () => {
  it('a lease that is taken and given back again and again', () => {
    const alone = typical(new MemoryStore(), takeAndGiveBack);
    const crowded = typical(fill(new MemoryStore()), takeAndGiveBack);
    // It was 80 times as much when giving back deleted the key.
    expect(crowded / alone).toBeLessThan(10);
  });

  it('a window that ends and begins again', () => {
    const alone = typicalWindows(new MemoryStore());
    const crowded = typicalWindows(fill(new MemoryStore()));
    expect(crowded / alone).toBeLessThan(10);
  });
});

describe('what becomes of the slots that are left behind?', () => {
  it('they count neither as keys nor as room taken', () => {
    const store = new MemoryStore({ maxKeys: 10 });
    const sizes = new Set<number>();
    for (let key = 0; key < 20_000; key++) {
      const step = lease(`key ${key}`);
      store.enter([step], deadline);
      sizes.add(store.size);
      store.leave([{ kind: 'release', key: step.key, token: 'me', ttlMs: 60_000 }]);
    }
    expect([...sizes]).toEqual([1]);
    expect(store.size).toBe(0);
  });

  it('a lease in a slot used before is as safe as in a new one', () => {
    const store = new MemoryStore({ maxKeys: 2 });
    for (let round = 0; round < 3; round++) {
      store.enter([lease('a')], deadline);
      store.enter([lease('b')], deadline);
      expect(store.size).toBe(2);
      expect(() => store.enter([lease('c')], deadline)).toThrow('full');
      store.leave([{ kind: 'release', key: 'a', token: 'me', ttlMs: 60_000 }]);
      store.leave([{ kind: 'release', key: 'b', token: 'me', ttlMs: 60_000 }]);
    }
  });
});

function lease(key: string, ttlMs = 60_000): EnterStep & { readonly kind: 'lease' } {
  return { kind: 'lease', key, token: 'me', ttlMs };
}

/** Others' leases and counters. */
function fill(store: MemoryStore): MemoryStore {
  for (let other = 0; other < 20_000; other++) {
    const window = { kind: 'fixed_window', key: `others ${other}`, max: 5, windowMs: 3_600_000 };
    store.enter([lease(`other ${other}`, 3_600_000), window as EnterStep], deadline);
  }
  return store;
}

function takeAndGiveBack(store: MemoryStore): void {
  const key = 'busy';
  store.enter([lease(key)], deadline);
  store.leave([{ kind: 'release', key, token: 'me', ttlMs: 60_000 }]);
}

function typical(store: MemoryStore, work: (store: MemoryStore) => void): number {
  const rounds: number[] = [];
  for (let round = 0; round < 5; round++) {
    const started = performance.now();
    for (let time = 0; time < TIMES; time++) work(store);
    rounds.push(performance.now() - started);
  }
  return rounds.toSorted((a, b) => a - b)[2] as number;
}

function typicalWindows(store: MemoryStore): number {
  let now = performance.now();
  store.useClock({ now: () => now, sleep: () => Promise.resolve(), every: () => () => {} });
  return typical(store, () => {
    now += 10;
    store.enter([{ kind: 'fixed_window', key: 'busy', max: 5, windowMs: 5 }], deadline);
  });
}
