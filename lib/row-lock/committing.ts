import { TransactionAbortedError } from '../errors/transaction-aborted.error.js';
import { IN_FAILED_TRANSACTION, sqlStateOf } from './sql-state.js';

/**
 * Runs what is to be committed, in a library that does not look at what its COMMIT is answered: asks
 * the database, in one trip, whether it is going to keep it.
 *
 * @param ask asks inside the transaction
 * @throws TransactionAbortedError where the COMMIT would be a ROLLBACK
 */
export async function committing<T>(
  body: () => Promise<T>,
  ask: (sql: string) => Promise<unknown>,
): Promise<T> {
  const value = await body();
  try {
    await ask('SELECT 1');
  } catch (error) {
    if (sqlStateOf(error) === IN_FAILED_TRANSACTION) throw new TransactionAbortedError(error);
    throw error;
  }
  return value;
}
