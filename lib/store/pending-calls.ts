import { outside } from '../process-wide.js';

/**
 * Gives every call the same patience with one timer for all of them: the calls stand in a queue in
 * the order in which they run out, and only the first has a timer. The timer keeps the process alive
 * only while a call waits.
 */
export class PendingCalls {
  readonly #queue = new Set<PendingCall>();
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param makeError the reason to reject with
   * @returns `promise`, or a rejection at `at` (scale of `performance.now()`, milliseconds)
   */
  settleBy<T>(at: number, promise: Promise<T>, makeError: () => Error): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const call: PendingCall = { at, expire: () => reject(makeError()) };
      this.#queue.add(call);
      if (this.#queue.size === 1) this.#arm(call);
      promise.then(resolve, reject).finally(() => this.#forget(call));
    });
  }

  #arm(call: PendingCall): void {
    if (this.#timer) {
      this.#timer.ref();
      return;
    }
    const ms = Math.max(1, Math.ceil(call.at - performance.now()));
    this.#timer = outside(() => setTimeout(this.#onTimer, ms));
  }

  #forget(call: PendingCall): void {
    this.#queue.delete(call);
    if (this.#queue.size === 0) this.#timer?.unref();
  }

  readonly #onTimer = (): void => {
    // After a stall of this process the answer may already lie in the socket: read it first.
    setImmediate(() => {
      this.#timer = undefined;
      const now = performance.now();
      for (const call of this.#queue) {
        if (call.at > now) {
          this.#arm(call);
          return;
        }
        this.#queue.delete(call);
        call.expire();
      }
    });
  };
}

interface PendingCall {
  readonly at: number;
  readonly expire: () => void;
}
