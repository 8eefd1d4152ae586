import { getEventListeners } from 'node:events';
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { every, SystemClock } from '../../../lib/clock/clock.js';

describe('does the system clock sleep as long as it is told?', () => {
  afterEach(() => void jest.useRealTimers());

  it('never wakes early', async () => {
    const clock = new SystemClock();
    for (const ms of [0.2, 1, 7.5, 20]) {
      const start = clock.now();
      await clock.sleep(ms);
      expect(clock.now() - start).toBeGreaterThanOrEqual(ms);
    }
  });

  it('keeps a sleep longer than 2^31 milliseconds, which one timer cannot', async () => {
    jest.useFakeTimers();
    const clock = new SystemClock();
    let awake = false;
    const longest = 2 ** 31 - 1;
    void clock.sleep(longest + 5_000).then(() => (awake = true));
    await jest.advanceTimersByTimeAsync(longest + 4_999);
    expect(awake).toBe(false);
    await jest.advanceTimersByTimeAsync(1);
    expect(awake).toBe(true);
  });

  it('sleeps for ever when told so, and can still be woken', async () => {
    const controller = new AbortController();
    const sleep = new SystemClock().sleep(Infinity, controller.signal);
    controller.abort(new Error('enough'));
    await expect(sleep).rejects.toThrow('enough');
  });

  it('a sleep of nothing is over at once', async () => {
    await new SystemClock().sleep(0);
    await new SystemClock().sleep(-5);
  });
});

describe('does a signal end a sleep?', () => {
  it('with the reason of the signal, at once, and no timer is left', async () => {
    const before = timers();
    const controller = new AbortController();
    const reason = new Error('the application is closing');
    const sleep = new SystemClock().sleep(60_000, controller.signal);
    expect(timers()).toBe(before + 1);
    controller.abort(reason);
    await expect(sleep).rejects.toBe(reason);
    expect(timers()).toBe(before);
  });

  it('one that is aborted already lets nobody sleep, not even for nothing', async () => {
    const signal = AbortSignal.abort(new Error('too late'));
    await expect(new SystemClock().sleep(60_000, signal)).rejects.toThrow('too late');
    await expect(new SystemClock().sleep(0, signal)).rejects.toThrow('too late');
  });

  it('leaves no listener on it, however often it slept', async () => {
    const { signal } = new AbortController();
    const clock = new SystemClock();
    await Promise.all(Array.from({ length: 50 }, () => clock.sleep(1, signal)));
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });
});

describe('does a repeated task keep the process alive?', () => {
  it('no, and it stops when told', async () => {
    const before = timers();
    let runs = 0;
    const stop = new SystemClock().every(2, () => (runs += 1));
    expect(timers()).toBe(before);
    await new SystemClock().sleep(30);
    expect(runs).toBeGreaterThan(0);
    stop();
    const counted = runs;
    await new SystemClock().sleep(10);
    expect(runs).toBe(counted);
  });

  it('a clock that cannot repeat gets real time', async () => {
    let runs = 0;
    const stop = every({ now: () => 0, sleep: async () => {} }, 2, () => (runs += 1));
    await new SystemClock().sleep(30);
    stop();
    expect(runs).toBeGreaterThan(0);
  });
});

/** Timers that keep this process alive. */
function timers(): number {
  return process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
}
