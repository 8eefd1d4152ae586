import type { RedisStore } from 'nestjs-cmdx/redis';
import { until } from './time.js';

/** Waits for a store's connection: to connect is not what a test gives its store little time for. */
export function connected(store: RedisStore): Promise<void> {
  const answers = (): Promise<boolean> =>
    store.get('connected?').then(
      () => true,
      () => false,
    );
  return until(answers, 'the connection to Redis');
}
