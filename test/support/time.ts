import { clearTimeout, setImmediate, setTimeout } from 'node:timers';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import type { ManualClock } from 'nestjs-cmdx/testing';

/** Really waits, never less than asked: a Node timer may fire a fraction of a millisecond early. */
export async function waitFor(ms: number): Promise<void> {
  const end = performance.now() + ms;
  while (performance.now() < end) await sleep(Math.max(1, Math.ceil(end - performance.now())));
  // A server that counts whole milliseconds expires a key in the one after its last.
  await sleep(2);
}

/** How closely {@link Patience} watches its process. */
const TICK_MS = 5;

/**
 * A span of time, counted as long as this process runs. While it stands still (another process has
 * the machine, garbage is collected) every clock goes on, but nothing that the process waits for can
 * happen: what a clock says afterwards is true of the machine, not of the call that was waited for.
 * In a process that is not held up it ends exactly when a timer of the same span would.
 */
class Patience {
  over = false;
  readonly ended: Promise<void>;
  #left: number;
  #lookedAt = performance.now();
  #timer: NodeJS.Timeout | undefined;
  #end = (): void => undefined;

  constructor(ms: number) {
    this.#left = ms;
    this.ended = new Promise((resolve) => (this.#end = resolve));
    this.#wait();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #wait(): void {
    const ms = Math.max(1, Math.min(TICK_MS, Math.ceil(this.#left)));
    // Whoever runs the test keeps the process alive for as long as it may take.
    this.#timer = setTimeout(this.#look, ms).unref();
  }

  readonly #look = (): void => {
    const now = performance.now();
    const passed = now - this.#lookedAt;
    this.#lookedAt = now;
    this.#left -= passed > 2 * TICK_MS ? TICK_MS : passed;
    if (this.#left > 0) this.#wait();
    // What is due at this moment, or lies in a socket, comes first.
    else setImmediate(() => setImmediate(this.#finish));
  };

  readonly #finish = (): void => {
    this.over = true;
    this.#end();
  };
}

/**
 * Waits for a call that has to settle in time, however it settles. The time in which this process
 * stands still is not held against it.
 *
 * @returns what it returns
 * @throws what it throws, and an Error as soon as it is late
 */
export async function settledWithin<T>(ms: number, call: Promise<T>): Promise<T> {
  const patience = new Patience(ms);
  const late = patience.ended.then(() => {
    throw new Error(`not settled within ${ms} ms`);
  });
  try {
    return await Promise.race([call, late]);
  } finally {
    patience.stop();
  }
}

/**
 * Asks again and again until the answer is yes. The time in which this process stands still does
 * not count.
 *
 * @throws Error when it takes too long
 */
export async function until(
  question: () => boolean | Promise<boolean>,
  what: string,
  withinMs = 5_000,
): Promise<void> {
  const patience = new Patience(withinMs);
  try {
    while (!(await question())) {
      if (patience.over) throw new Error(`waited in vain for: ${what}`);
      await sleep(5);
    }
  } finally {
    patience.stop();
  }
}

/** Lets time pass on a clock that stands still, in small steps, until the call has ended. */
export async function passing<T>(clock: ManualClock, call: Promise<T>): Promise<T> {
  const state = { ended: false };
  const done = call.finally(() => (state.ended = true));
  done.catch(() => undefined);
  while (!state.ended) {
    await clock.advance('10ms');
    await turn();
  }
  return done;
}
