import { brand, hasBrand } from './brand.js';

/**
 * The database was asked to commit a transaction, and its answer never came: what was done in it may be
 * saved, or not. It is not tried again by itself, and a claim of `@IdempotentBy` around it is left to
 * be found abandoned.
 */
export class TransactionInDoubtError extends Error {
  readonly code = 'transaction_in_doubt';

  /** @param cause why there was no answer */
  constructor(cause: unknown) {
    super(
      'The COMMIT of the transaction was not answered: what was done in it may have been saved, or not.',
      { cause },
    );
    this.name = 'TransactionInDoubtError';
    brand(this, 'transaction_in_doubt');
  }
}

/** Whether `error` is a {@link TransactionInDoubtError}, from whichever copy of the package. */
export function isTransactionInDoubtError(error: unknown): error is TransactionInDoubtError {
  return hasBrand(error, 'transaction_in_doubt');
}
