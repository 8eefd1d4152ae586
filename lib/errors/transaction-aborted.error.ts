import { brand, hasBrand } from './brand.js';

/**
 * A transaction that was to be committed, and of which the database had already given up: its COMMIT
 * is a ROLLBACK, of which Postgres tells no error.
 */
export class TransactionAbortedError extends Error {
  readonly code = 'transaction_aborted';

  constructor(cause?: unknown) {
    super(
      'The transaction was rolled back: an earlier statement in it had failed, and that error was caught. Nothing was saved.',
      { cause },
    );
    this.name = 'TransactionAbortedError';
    brand(this, 'transaction_aborted');
  }
}

/** Whether `error` is a {@link TransactionAbortedError}, from whichever copy of the package. */
export function isTransactionAbortedError(error: unknown): error is TransactionAbortedError {
  return hasBrand(error, 'transaction_aborted');
}
