/** What is asked of a process: to break the circuit, or to call it from so many callers at once. */
export type HalfOpenOrder =
  | { readonly task: 'trip' | 'release' }
  | {
      readonly task: 'storm';
      readonly method: 'probe' | 'probeLocked';
      readonly key: string;
      readonly callers: number;
    };

/** How the callers of one process stand, or have ended. */
export interface HalfOpenStand {
  /** Bodies that were let in and have not ended. */
  readonly inside: number;
  /** Of those that have ended: `'success'`, or the code of the refusal, and how often each. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** Transitions of the breaker that this process was told. */
  readonly transitions: Readonly<Record<string, number>>;
}

export const PERMITS = 2;
export const OPEN_MS = 200;
/** The key under which bodies count themselves, where all processes see it. */
export const BODIES = 'bodies';
export const CIRCUIT_KEY = 'cmdx:cb:upstream';

export function lockKeyOf(key: string): string {
  return `cmdx:lock:Upstream.probeLocked:${key}`;
}
