import { brand, hasBrand } from './brand.js';

/** A row lock was asked for outside a transaction, where it would end with its own statement. */
export class NoTransactionError extends Error {
  readonly code = 'no_transaction';

  /** @param site who asked, for example `RowLocks.lock` */
  constructor(site: string) {
    super(
      `${site}: expected to be called inside a transaction, got none; use RowLocks.withLock() or @WithRowLock, which open one`,
    );
    this.name = 'NoTransactionError';
    brand(this, 'no_transaction');
  }
}

/** Whether `error` is a {@link NoTransactionError}, from whichever copy of the package. */
export function isNoTransactionError(error: unknown): error is NoTransactionError {
  return hasBrand(error, 'no_transaction');
}
