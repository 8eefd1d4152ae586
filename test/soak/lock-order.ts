/** Few keys and many callers: nearly every call meets another. */
export const KEYS = 3;
export const CALLERS = 12;
/** How long a killed process blocks its key. */
export const TTL_MS = 1_000;

/** What the workers count together, in a hash in Redis. */
export interface LockTally {
  readonly bodies: number;
  readonly busy: number;
  /** Calls that the store did not answer in time. */
  readonly outages: number;
  /** Bodies whose lease had already run out when they began: this process stood still too long. */
  readonly late: number;
}

export function lockKeyOf(key: number): string {
  return `cmdx:lock:Contended.work:key-${key}`;
}
