import { describe, it } from '@jest/globals';
import type { Clock } from '../../lib/clock/clock.js';
import { MemoryStore } from '../../lib/store/memory/memory.store.js';
import { storeConformance } from '../../lib/testing/store-conformance.js';

describe('does MemoryStore keep the store contract?', () => {
  storeConformance(it, async () => {
    const clock = new SteppedClock();
    const store = new MemoryStore({ maxKeys: 10_000 });
    store.useClock(clock);
    return {
      store,
      advance: async (ms) => void (clock.ms += ms),
      slackMs: 0,
      dispose: () => store.close(),
    };
  });
});

/** Time moves only when the test says so. */
class SteppedClock implements Clock {
  ms = 1_000_000;

  now(): number {
    return this.ms;
  }

  sleep(): Promise<void> {
    return Promise.resolve();
  }

  every(): () => void {
    return () => {};
  }
}
