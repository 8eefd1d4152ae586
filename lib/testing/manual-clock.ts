import type { Clock } from '../clock/clock.js';
import { type Duration, toMilliseconds } from '../clock/duration.js';

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

/** A clock that stands still until a test moves it. */
export class ManualClock implements Clock {
  #now: number;
  readonly #timers = new Set<Timer>();

  /** @param startMs what `now()` answers at first, in milliseconds */
  constructor(startMs = 0) {
    this.#now = startMs;
  }

  now(): number {
    return this.#now;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const timer: Timer = {
        at: this.#now + ms,
        run: () => {
          signal?.removeEventListener('abort', onAbort);
          resolve();
        },
      };
      const onAbort = (): void => {
        this.#timers.delete(timer);
        reject(signal?.reason);
      };
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#timers.add(timer);
    });
  }

  every(ms: number, task: () => void): () => void {
    let timer: Timer;
    const arm = (): void => {
      timer = {
        at: this.#now + ms,
        run: () => {
          arm();
          task();
        },
      };
      this.#timers.add(timer);
    };
    arm();
    return () => this.#timers.delete(timer);
  }

  /** Sleeps and repeated tasks that have not come due. */
  get pending(): number {
    return this.#timers.size;
  }

  /**
   * Moves the time forward. Sleeps that come due end in their order, each at its own moment, and
   * what they set off has run before the next.
   */
  async advance(by: Duration): Promise<void> {
    const end = this.#now + toMilliseconds(by, 'ManualClock.advance', true);
    await settled();
    for (let next = this.#nextDue(end); next; next = this.#nextDue(end)) {
      this.#now = Math.max(this.#now, next.at);
      this.#timers.delete(next);
      next.run();
      await settled();
    }
    this.#now = end;
    await settled();
  }

  #nextDue(end: number): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.at <= end && (first === undefined || timer.at < first.at)) first = timer;
    }
    return first;
  }
}

/** Lets everything that is ready run: promises first, then one turn of the event loop. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
