import { setTimeout as sleep } from 'node:timers/promises';

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
