import { randomUUID } from 'node:crypto';
import { describe, it } from '@jest/globals';
import { MemoryStore } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { ManualClock } from 'nestjs-cmdx/testing';
import { borrowRedis } from '../support/redis-server.js';
import { waitFor } from '../support/time.js';
import { exploreClaims, type Times } from './claim-model.js';
import { ClaimWitness } from './claim-witness.js';

/** How many random interleavings to try; a soak run sets thousands. */
const RUNS = Number(process.env['CMDX_MODEL_RUNS'] ?? 50);

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

/** Every moment can be met exactly. */
const ANY: Times = {
  leases: [1, 20, 100],
  ttls: [1, 100, 6_000, 6_000, 6_000, 6_000],
  steps: [1, 19, 20, 80, 100, 6_000],
  lapseMs: 0,
};
/** In real time a lease is either over at once or for the whole run, so that nothing hangs on its speed. */
const OVER_OR_NOT: Times = {
  leases: [1, 1, HOUR],
  ttls: [1, DAY, DAY, DAY, DAY],
  steps: [],
  lapseMs: 3,
};

describe('do claims keep to their state machine, whatever three owners do?', () => {
  it(`in memory, ${RUNS * 4} random interleavings`, async () => {
    const opened: MemoryStore[] = [];
    await exploreClaims(RUNS * 4, ANY, async () => {
      const clock = new ManualClock(1_000_000);
      const store = new MemoryStore();
      store.useClock(clock);
      opened.push(store);
      return {
        store,
        prefix: '',
        advance: (ms) => clock.advance(`${ms}ms`),
        witness: new ClaimWitness(),
      };
    });
    for (const store of opened) await store.close();
  }, 3_600_000);

  it(`in Redis, ${RUNS} random interleavings`, async () => {
    const server = await borrowRedis();
    const store = new RedisStore({ url: server.url });
    try {
      await exploreClaims(RUNS, OVER_OR_NOT, async () => ({
        store,
        prefix: `model:${randomUUID()}:`,
        advance: waitFor,
        witness: new ClaimWitness(),
      }));
    } finally {
      await store.close();
      await server.stop();
    }
  }, 3_600_000);
});
