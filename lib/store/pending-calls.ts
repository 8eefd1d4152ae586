import { outside } from '../process-wide.js';

/**
 * Gives every call the same patience with one timer for all of them. The timer stands at the call
 * that runs out first; while no call is pending it does not keep the process alive.
 */
export class PendingCalls {
  readonly #queue = new Set<PendingCall>();
  #timer: NodeJS.Timeout | undefined;
  #firesAt = Infinity;

  /**
   * @param makeError the reason to reject with
   * @returns `promise`, or a rejection at `at` (scale of `performance.now()`, milliseconds)
   */
  settleBy<T>(at: number, promise: Promise<T>, makeError: () => Error): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const call: PendingCall = { at, expire: () => reject(makeError()) };
      this.#queue.add(call);
      this.#arm(at);
      promise.then(resolve, reject).finally(() => this.#remove(call));
    });
  }

  #remove(call: PendingCall): void {
    this.#queue.delete(call);
    if (this.#queue.size === 0) this.#timer?.unref();
  }

  #arm(at: number): void {
    if (this.#timer && this.#firesAt <= at) {
      if (this.#queue.size === 1) this.#timer.ref();
      return;
    }
    clearTimeout(this.#timer);
    this.#firesAt = at;
    const ms = Math.max(1, Math.ceil(at - performance.now()));
    this.#timer = outside(() => setTimeout(this.#onTimer, ms));
  }

  readonly #onTimer = (): void => {
    // After a stall of this process the answer may already lie in the socket: read it first.
    setImmediate(this.#expire);
  };

  readonly #expire = (): void => {
    this.#timer = undefined;
    const now = performance.now();
    let next = Infinity;
    for (const call of this.#queue) {
      if (call.at > now) {
        next = Math.min(next, call.at);
      } else {
        this.#queue.delete(call);
        call.expire();
      }
    }
    if (next < Infinity) this.#arm(next);
  };
}

interface PendingCall {
  readonly at: number;
  readonly expire: () => void;
}
