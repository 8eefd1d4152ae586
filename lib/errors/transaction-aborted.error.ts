import { brand, hasBrand } from './brand.js';

/**
 * A transaction that was to be committed, and that the database had already given up: its COMMIT is a
 * ROLLBACK, of which Postgres tells no error, or its connection was lost before.
 */
export class TransactionAbortedError extends Error {
  readonly code = 'transaction_aborted';

  /** @param why in words that follow a colon */
  constructor(
    cause?: unknown,
    why = 'an earlier statement in it had failed, and that error was caught',
  ) {
    super(`The transaction was rolled back: ${why}. Nothing was saved.`, { cause });
    this.name = 'TransactionAbortedError';
    brand(this, 'transaction_aborted');
  }
}

/** Whether `error` is a {@link TransactionAbortedError}, from whichever copy of the package. */
export function isTransactionAbortedError(error: unknown): error is TransactionAbortedError {
  return hasBrand(error, 'transaction_aborted');
}
