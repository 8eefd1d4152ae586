/** One wrapper of ours around a method. */
export interface WrapperRecord {
  /** The prototype it was made for. */
  readonly home: object;
  readonly method: PropertyKey;
  /** How far out it stands among the wrappers that one call can pass: the more derived, the higher. */
  readonly rank: number;
  readonly wrapper: (...args: unknown[]) => unknown;
  /** What it wraps. */
  readonly original: (...args: unknown[]) => unknown;
}
