/**
 * What the store's clock shows, as an interval around `store time - local monotonic time`.
 *
 * A reply that carries the store's time `s`, sent at `a` and received at `b` (both local), proves
 * that the difference lay in `[s - b, s - a]`. The intersection of all replies is the estimate; if
 * it is empty a clock was stepped, and only the newest reply counts. Same bound as in F. Cristian,
 * "Probabilistic clock synchronization" (1989). All values are milliseconds.
 */
export class StoreClock {
  #low = -Infinity;
  #high = Infinity;

  /** @returns whether the reply contradicts what was known: a clock was stepped */
  observe(storeTime: number, sentAt: number, receivedAt: number): boolean {
    const low = Math.max(this.#low, storeTime - receivedAt);
    const high = Math.min(this.#high, storeTime - sentAt);
    const stepped = low > high;
    this.#low = stepped ? storeTime - receivedAt : low;
    this.#high = stepped ? storeTime - sentAt : high;
    return stepped;
  }

  /**
   * A local moment on the store's clock, in whole milliseconds. Never later than the real one:
   * the low end may refuse a call in its last instant, the high end could run one too late.
   */
  fromLocal(at: number): number {
    return Math.floor(this.#low + at);
  }
}
