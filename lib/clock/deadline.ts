/**
 * The moment by which a store call must have an answer. Always in real, monotonic time
 * (`performance.now()`): a manual clock moves leases and windows, not the patience of a caller.
 */
export class Deadline {
  private constructor(
    /** On the scale of `performance.now()`, in milliseconds. */
    readonly at: number,
  ) {}

  static after(ms: number): Deadline {
    return new Deadline(performance.now() + ms);
  }

  /** Milliseconds left; zero or less once it has passed. */
  remaining(): number {
    return this.at - performance.now();
  }
}
