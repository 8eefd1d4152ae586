import { getEventListeners } from 'node:events';
import { describe, expect, it } from '@jest/globals';
import { ManualClock } from 'nestjs-cmdx/testing';

describe('does time pass on the manual clock?', () => {
  it('only when a test says so', async () => {
    const clock = new ManualClock(1_000);
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(clock.now()).toBe(1_000);
    await clock.advance('1.5s');
    expect(clock.now()).toBe(2_500);
    await clock.advance(2);
    expect(clock.now()).toBe(4_500);
    await clock.advance(0);
    expect(clock.now()).toBe(4_500);
  });

  it('never back', async () => {
    await expect(new ManualClock().advance(-1)).rejects.toThrow('expected zero or more seconds');
  });
});

describe('do sleeps end in their order?', () => {
  it('each at its own moment, and equal ones as they began', async () => {
    const clock = new ManualClock();
    const woken: string[] = [];
    for (const [name, ms] of [
      ['late', 300],
      ['early', 100],
      ['early too', 100],
      ['not yet', 301],
    ] as const) {
      void clock.sleep(ms).then(() => woken.push(`${name} at ${clock.now()}`));
    }
    await clock.advance('300ms');
    expect(woken).toEqual(['early at 100', 'early too at 100', 'late at 300']);
    expect(clock.pending).toBe(1);
    await clock.advance('1ms');
    expect(woken.at(-1)).toBe('not yet at 301');
    expect(clock.pending).toBe(0);
  });

  it('what a sleeper does next is done before the following one wakes', async () => {
    const clock = new ManualClock();
    const steps: string[] = [];
    const worker = async (): Promise<void> => {
      for (let lap = 1; lap <= 3; lap++) {
        await clock.sleep(10);
        await Promise.resolve();
        steps.push(`lap ${lap} at ${clock.now()}`);
      }
    };
    void worker();
    void clock.sleep(25).then(() => steps.push(`other at ${clock.now()}`));
    await clock.advance('30ms');
    expect(steps).toEqual(['lap 1 at 10', 'lap 2 at 20', 'other at 25', 'lap 3 at 30']);
  });

  it('a signal ends one, and leaves neither a sleep nor a listener behind', async () => {
    const clock = new ManualClock();
    const controller = new AbortController();
    const sleep = clock.sleep(10, controller.signal);
    controller.abort(new Error('enough'));
    await expect(sleep).rejects.toThrow('enough');
    expect(clock.pending).toBe(0);
    await expect(clock.sleep(10, controller.signal)).rejects.toThrow('enough');
    expect(clock.pending).toBe(0);

    const { signal } = new AbortController();
    const done = clock.sleep(10, signal);
    await clock.advance('10ms');
    await done;
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });
});

describe('does a repeated task run on manual time?', () => {
  it('at every multiple, until it is stopped, from inside too', async () => {
    const clock = new ManualClock();
    const at: number[] = [];
    const stop = clock.every(10, () => {
      at.push(clock.now());
      if (at.length === 3) stop();
    });
    await clock.advance('100ms');
    expect(at).toEqual([10, 20, 30]);
    expect(clock.pending).toBe(0);
  });
});
