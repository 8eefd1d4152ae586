/** What an outcome means for everything around the body. */
export interface OutcomeRow {
  /**
   * The breaker's sample. An `ignored` one is no sample, and gives the permit of a probe back: the
   * call says nothing about the dependency.
   */
  readonly sample: 'success' | 'failure' | 'ignored';
  /** The claim: its outcome is kept, kept without an answer, the key is free again, or found abandoned. */
  readonly claim: 'keep' | 'tombstone' | 'drop' | 'abandon';
  /** Whether the body may be repeated, if the error is one of those listed. */
  readonly retry: boolean;
  /** A start is charged once, and nothing is refunded. */
  readonly quota: 'charged' | 'not charged';
  readonly lease: 'released';
}

const AFTER = { quota: 'charged', lease: 'released' } as const;

/**
 * Every way in which an invocation can end, and what it means for breaker, quota, claim, lease and
 * retry: no policy decides that by itself.
 */
export const OUTCOME_TABLE = {
  /** The body returned, and its value is what the caller gets. */
  returned: { sample: 'success', claim: 'keep', retry: false, ...AFTER },
  /** A client of HTTP was answered. */
  answered: { sample: 'success', claim: 'keep', retry: false, ...AFTER },
  /** The body returned; its answer failed afterwards, or nobody waits for it. */
  unanswered: { sample: 'success', claim: 'tombstone', retry: false, ...AFTER },
  /** A client of HTTP was answered with a status of 500 or above: the server says that it has failed. */
  server_error: { sample: 'failure', claim: 'drop', retry: false, ...AFTER },
  /** The body returned what the output schema refuses: the work is done all the same. */
  output_invalid: { sample: 'ignored', claim: 'tombstone', retry: false, ...AFTER },
  /** `skip()`. */
  skipped: { sample: 'ignored', claim: 'drop', retry: false, ...AFTER },
  /** `fail()`. */
  failed: { sample: 'ignored', claim: 'drop', retry: false, ...AFTER },
  /** A policy of a nested call said no. */
  refused: { sample: 'ignored', claim: 'drop', retry: false, ...AFTER },
  /** A nested call returned what its output schema refuses: it failed, and its work is done all the same. */
  nested_output_invalid: { sample: 'failure', claim: 'drop', retry: false, ...AFTER },
  /** The database ended the transaction because of others: nothing of the body's was saved. */
  conflict: { sample: 'ignored', claim: 'drop', retry: true, ...AFTER },
  /** The COMMIT of its row lock was not answered: nobody knows whether the work is done. */
  in_doubt: { sample: 'failure', claim: 'abandon', retry: false, ...AFTER },
  /** An `HttpException` below 500: the caller's fault, not the dependency's. */
  client_error: { sample: 'ignored', claim: 'drop', retry: true, ...AFTER },
  /** The signal aborted, or the body ended with an `AbortError`. */
  aborted: { sample: 'ignored', claim: 'drop', retry: false, ...AFTER },
  /** Any other error. */
  threw: { sample: 'failure', claim: 'drop', retry: true, ...AFTER },
  /** A ring further in said no, or the caller left: the body never ran. */
  unused: { sample: 'ignored', claim: 'drop', retry: false, ...AFTER },
  /** The arguments do not fit: no ring was entered. */
  input_invalid: {
    sample: 'ignored',
    claim: 'drop',
    retry: false,
    quota: 'not charged',
    lease: 'released',
  },
} as const satisfies Record<string, OutcomeRow>;

export type EndingKind = keyof typeof OUTCOME_TABLE;
