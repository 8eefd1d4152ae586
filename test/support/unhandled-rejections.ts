import { afterEach, beforeEach, expect } from '@jest/globals';

/** Fails a test of the file during which a promise was rejected that nobody listened to: Node ends a process for it. */
export function refuseUnhandledRejections(): void {
  let unhandled: unknown[];
  const note = (reason: unknown): void => void unhandled.push(reason);
  beforeEach(() => {
    unhandled = [];
    process.on('unhandledRejection', note);
  });
  afterEach(async () => {
    // Node tells of them after the microtasks of a turn.
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
  });
}
