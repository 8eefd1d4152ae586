import { jest } from '@jest/globals';

/**
 * Makes the date stand still, and only the date: stores, their connections and all waits live on in
 * real time. May be called again for another date; `jest.useRealTimers()` undoes it.
 */
export function stopDate(date: string): void {
  jest.useFakeTimers({
    now: new Date(date),
    doNotFake: [
      'hrtime',
      'nextTick',
      'performance',
      'queueMicrotask',
      'setImmediate',
      'clearImmediate',
      'setInterval',
      'clearInterval',
      'setTimeout',
      'clearTimeout',
    ],
  });
}
