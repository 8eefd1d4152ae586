import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from '@jest/globals';
import { settledWithin, until } from '../../support/time.js';

const never = new Promise<never>(() => {});

/** Many short waits one after the other: a stall of the process makes at most one of them long. */
async function steps(count: number): Promise<string> {
  for (let step = 0; step < count; step += 1) await sleep(5);
  return 'done';
}

function standStill(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

/** Stands still in the midst of what goes on. */
async function stall(afterMs: number, ms: number): Promise<void> {
  await sleep(afterMs);
  standStill(ms);
}

describe('is a call in time?', () => {
  it('no, when it never settles', async () => {
    await expect(settledWithin(20, never)).rejects.toThrow('not settled within 20 ms');
  });

  it('no, when it settles too late', async () => {
    await expect(settledWithin(100, steps(60))).rejects.toThrow('not settled within 100 ms');
    const failing = steps(60).then(() => Promise.reject(new Error('its own')));
    await expect(settledWithin(100, failing)).rejects.toThrow('not settled within 100 ms');
  });

  it('yes, with its own value or error', async () => {
    const error = new Error('its own');
    expect(await settledWithin(1_000, steps(2))).toBe('done');
    await expect(settledWithin(1_000, Promise.reject(error))).rejects.toBe(error);
    expect(await settledWithin(0, Promise.resolve('at once'))).toBe('at once');
  });

  it('yes, when this process stood still while it was under way', async () => {
    const [one, many] = await Promise.all([
      settledWithin(200, sleep(60, 'one step')),
      settledWithin(400, steps(20)),
      stall(20, 500),
    ]);
    expect([one, many]).toEqual(['one step', 'done']);
  });

  it('yes, when all that was missing lies in a socket at the last moment', async () => {
    const read = sleep(4).then(() => new Promise((resolve) => setImmediate(resolve, 'read')));
    const call = settledWithin(5, read);
    standStill(50);
    expect(await call).toBe('read');
  });

  it('no, when this process stood still, but not for so long', async () => {
    const late = settledWithin(100, steps(80));
    const missed = expect(late).rejects.toThrow('not settled within 100 ms');
    await stall(20, 60);
    await missed;
  });
});

describe('how long is an answer waited for?', () => {
  it('until it is yes', async () => {
    let asked = 0;
    await until(() => (asked += 1) === 3, 'the third question');
    expect(asked).toBe(3);
  });

  it('as long as was said, and what it was is told', async () => {
    const startedAt = performance.now();
    await expect(until(() => false, 'Godot', 50)).rejects.toThrow('waited in vain for: Godot');
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(49);
  });

  it('longer, when this process stood still meanwhile', async () => {
    let ready = false;
    const work = steps(20).then(() => (ready = true));
    await Promise.all([until(() => ready, 'the work', 400), stall(20, 500), work]);
    expect(ready).toBe(true);
  });
});
