/**
 * The time that stores, waits and sweepers live by. Only differences matter: `now()` need not be
 * the time of day.
 */
export interface Clock {
  /** Milliseconds since an arbitrary start; never goes back. */
  now(): number;
  /**
   * Resolves after `ms` milliseconds.
   *
   * @param signal rejects the sleep with the signal's reason as soon as it aborts
   */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /**
   * Runs `task` every `ms` milliseconds until the returned function is called, without keeping the
   * process alive. Optional: a clock without it gets an interval in real time.
   */
  every?(ms: number, task: () => void): () => void;
}

/** The longest delay that a Node timer keeps; a longer one would fire at once. */
const LONGEST_TIMER_MS = 2_147_483_647;

/** The default clock: monotonic, so that a stepped time of day changes nothing. */
export class SystemClock implements Clock {
  now(): number {
    return performance.now();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const end = this.now() + ms;
    for (let left = ms; left > 0; left = end - this.now()) {
      await timer(Math.min(Math.ceil(left), LONGEST_TIMER_MS), signal);
    }
    signal?.throwIfAborted();
  }

  every(ms: number, task: () => void): () => void {
    const interval = setInterval(task, ms).unref();
    return () => clearInterval(interval);
  }
}

function timer(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const onAbort = (): void => {
      clearTimeout(timeout);
      reject(signal?.reason);
    };
    const timeout = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** Repeats `task` on `clock`, or in real time when the clock cannot repeat. */
export function every(clock: Clock, ms: number, task: () => void): () => void {
  return clock.every ? clock.every(ms, task) : new SystemClock().every(ms, task);
}
