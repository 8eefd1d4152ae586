import { setTimeout as sleep } from 'node:timers/promises';
import type { ManualClock } from 'nestjs-cmdx/testing';

/** Really waits, never less than asked: a Node timer may fire a fraction of a millisecond early. */
export async function waitFor(ms: number): Promise<void> {
  const end = performance.now() + ms;
  while (performance.now() < end) await sleep(Math.max(1, Math.ceil(end - performance.now())));
  // A server that counts whole milliseconds expires a key in the one after its last.
  await sleep(2);
}

/** Asks again and again until the answer is yes. @throws Error when it takes too long */
export async function until(
  question: () => boolean | Promise<boolean>,
  what: string,
  withinMs = 5_000,
): Promise<void> {
  const end = performance.now() + withinMs;
  while (!(await question())) {
    if (performance.now() > end) throw new Error(`waited in vain for: ${what}`);
    await sleep(5);
  }
}

/** Lets time pass on a clock that stands still, in small steps, until the call has ended. */
export async function passing<T>(clock: ManualClock, call: Promise<T>): Promise<T> {
  const state = { ended: false };
  const done = call.finally(() => (state.ended = true));
  done.catch(() => undefined);
  while (!state.ended) {
    await clock.advance('10ms');
    await new Promise(setImmediate);
  }
  return done;
}
