import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { settledWithin } from '../../support/time.js';
import { PendingCalls } from '../../../lib/store/pending-calls.js';

const never = new Promise<never>(() => {});
afterEach(() => void jest.restoreAllMocks());

const within = (ms: number): number => performance.now() + ms;

describe('does every call settle in time?', () => {
  it('with its own answer when there is one', async () => {
    const calls = new PendingCalls();
    const error = new Error('its own');
    await expect(calls.settleBy(within(1_000), Promise.resolve(7), tooLate)).resolves.toBe(7);
    await expect(calls.settleBy(within(1_000), Promise.reject(error), tooLate)).rejects.toBe(error);
  });

  it('else with the error made for it, at its time and not before', async () => {
    const calls = new PendingCalls();
    const start = performance.now();
    const call = settledWithin(2_000, calls.settleBy(start + 30, never, tooLate));
    await expect(call).rejects.toThrow('too late');
    expect(performance.now() - start).toBeGreaterThanOrEqual(30);
  });

  it('each at its own time, when many wait', async () => {
    const calls = new PendingCalls();
    const start = performance.now();
    const took = Array.from({ length: 40 }, async (_, position) => {
      const at = start + 10 + position;
      await calls.settleBy(at, never, tooLate).catch(() => undefined);
      return performance.now() - at;
    });
    expect(Math.min(...(await settledWithin(2_000, Promise.all(took))))).toBeGreaterThanOrEqual(0);
  });

  it('makes no error for a call that was answered', async () => {
    const calls = new PendingCalls();
    let made = 0;
    await calls.settleBy(within(5), Promise.resolve(), () => new Error(String((made += 1))));
    await sleep(20);
    expect(made).toBe(0);
  });

  it('prefers an answer that came while the process was stalled', async () => {
    const calls = new PendingCalls();
    const answer = new Promise((resolve) => {
      // Ready in the next turn of the loop, like bytes that lie in a socket.
      setTimeout(() => setImmediate(() => resolve('in time')), 1);
    });
    const call = calls.settleBy(within(5), answer, tooLate);
    stall(40);
    await expect(call).resolves.toBe('in time');
  });
});

describe('what does waiting cost?', () => {
  it('one timer, however many calls wait', async () => {
    const timers = watchTimers();
    const calls = new PendingCalls();
    const waiting = Array.from({ length: 100 }, () => calls.settleBy(within(20), never, tooLate));
    expect(timers().map((timer) => timer.hasRef())).toEqual([true]);
    await Promise.allSettled(waiting);
    expect(timers().length).toBeLessThan(waiting.length);
  });

  it('nothing that keeps the process alive, once all are answered', async () => {
    const timers = watchTimers();
    const calls = new PendingCalls();
    for (let call = 0; call < 3; call++) {
      await calls.settleBy(within(60_000), Promise.resolve(), tooLate);
    }
    await new Promise((resolve) => setImmediate(resolve));
    expect(timers().map((timer) => timer.hasRef())).toEqual([false]);
  });

  it('a call made after a pause is still given up in time', async () => {
    const calls = new PendingCalls();
    await calls.settleBy(within(20), Promise.resolve(), tooLate);
    await sleep(1);
    const timers = watchTimers();
    const waiting = calls.settleBy(within(30), never, tooLate);
    expect(timers().every((timer) => timer.hasRef())).toBe(true);
    await expect(waiting).rejects.toThrow('too late');
  });
});

function tooLate(): Error {
  return new Error('too late');
}

function stall(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

/** The timers started from now on: the whole process has others, which come and go. */
function watchTimers(): () => readonly NodeJS.Timeout[] {
  const spy = jest.spyOn(globalThis, 'setTimeout');
  return () => spy.mock.results.map(({ value }) => value as NodeJS.Timeout);
}
