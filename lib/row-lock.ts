/** The door `nestjs-cmdx/row-lock`: all about row locks, the adapters included. */
export { LockedRow } from './decorators/locked-row.js';
export { WithRowLock } from './decorators/with-row-lock.js';
export { isNoTransactionError, NoTransactionError } from './errors/no-transaction.error.js';
export {
  isTransactionAbortedError,
  TransactionAbortedError,
} from './errors/transaction-aborted.error.js';
export {
  isTransactionInDoubtError,
  TransactionInDoubtError,
} from './errors/transaction-in-doubt.error.js';
export { RowLockConflictError, RowLockedError, RowMissingError } from './errors/refusals.js';
export { currentTransaction } from './row-lock/locking.js';
export { RowLocks } from './row-lock/row-locks.js';
export * from './row-lock/index.js';
