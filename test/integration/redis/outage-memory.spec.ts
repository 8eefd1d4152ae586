import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from '@jest/globals';
import { Deadline, type EnterStep, isStoreError } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { startRedis } from '../../support/redis-server.js';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

const CALLS = 1_000;
/** The last ones may still be on somebody's stack. */
const FEW = 10;

/** @returns what the store was asked for, as long as something keeps it */
async function askInVain(store: RedisStore): Promise<WeakRef<object>[]> {
  const asked: WeakRef<object>[] = [];
  const calls = Array.from({ length: CALLS }, async (_, i) => {
    const steps: EnterStep[] = [
      { kind: 'lease', key: `outage:${i}`, token: String(i), ttlMs: 1_000 },
    ];
    asked.push(new WeakRef(steps));
    await store.enter(steps, Deadline.after(50));
  });
  const outcomes = await Promise.allSettled(calls);
  expect(
    outcomes.filter((outcome) => outcome.status === 'rejected' && isStoreError(outcome.reason)),
  ).toHaveLength(CALLS);
  return asked;
}

it('What does an outage leave behind of the calls that it has refused? Nothing, and the store recovers', async () => {
  const server = await startRedis();
  const store = new RedisStore({ url: server.url });
  try {
    await server.kill();
    const asked = await askInVain(store);
    for (let round = 0; round < 5; round++) {
      await sleep(5);
      gc();
    }
    expect(asked.filter((each) => each.deref() !== undefined).length).toBeLessThan(FEW);
    await server.restart();
    const late = { kind: 'lease', key: 'outage:late', token: 't', ttlMs: 1_000 } as const;
    await expect(store.enter([late], Deadline.after(5_000))).resolves.toEqual([
      { kind: 'lease', admitted: true },
    ]);
  } finally {
    await store.close();
    await server.stop();
  }
}, 30_000);
