import { afterAll, beforeAll, describe, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { RedisStore } from '../../lib/store/redis/index.js';
import { storeConformance, type StoreHarness } from '../../lib/testing/store-conformance.js';
import { waitFor } from '../support/time.js';
import { borrowRedis } from '../support/redis-server.js';

describe('does RedisStore keep the store contract?', () => {
  let server: Awaited<ReturnType<typeof borrowRedis>>;
  beforeAll(async () => {
    server = await borrowRedis();
  });
  afterAll(() => server.stop());

  storeConformance(it, async (): Promise<StoreHarness> => {
    const store = new RedisStore({ url: server.url });
    const outsider = new Redis(server.url);
    return {
      store,
      advance: waitFor,
      slackMs: 60,
      plant: async (key, value, ttlMs) => {
        await (ttlMs ? outsider.set(key, value, 'PX', ttlMs) : outsider.set(key, value));
      },
      dispose: async () => {
        await store.close();
        outsider.disconnect();
      },
    };
  });
});
