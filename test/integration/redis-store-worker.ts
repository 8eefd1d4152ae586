import { Deadline } from '../../lib/clock/deadline.js';
import { RedisStore } from '../../lib/store/redis/index.js';
import type { EnterStep, LeaveStep } from '../../lib/store/store.js';

/** A process of its own with a store of its own; does what the test sends and answers each message. */
export type Order =
  | { readonly enter: readonly EnterStep[]; readonly times: number }
  | { readonly leave: readonly LeaveStep[] };

const store = new RedisStore({ url: process.argv[2] ?? '' });

process.on('message', async (order: Order) => {
  if ('leave' in order) {
    process.send?.(await store.leave(order.leave));
    return;
  }
  const calls = Array.from({ length: order.times }, () =>
    store.enter(order.enter, Deadline.after(5_000)),
  );
  process.send?.(await Promise.all(calls));
});

process.once('SIGTERM', async () => {
  await store.close();
  process.disconnect();
});
