import {
  InvalidKeyError,
  type RefusalSite,
  RowLockConflictError,
  RowLockedError,
  RowMissingError,
} from '../errors/refusals.js';
import { isKeyProblem } from '../keys/key-resolver.js';
import {
  lockRows,
  type Locked,
  type LockedRowKey,
  readRows,
  type Within,
  withinTransaction,
} from './locking.js';
import type { ResolvedRowLocking } from './row-locking.js';
import { conflictOf } from './sql-state.js';
import type { RowTarget, Table } from './target.js';
import type { Row, Transactions } from './transactions.js';

/** Rows that are locked, in the transaction that holds the locks. */
export interface Held {
  readonly tx: unknown;
  /**
   * Reads them, under the lock.
   *
   * @throws RowMissingError for a row that the library does not show, such as one that is deleted
   *   softly, unless rows may be missing
   */
  read(): Promise<(Row | undefined)[]>;
}

/** A request that is checked, apart from what only the database knows. */
export interface RowRequest {
  readonly target: RowTarget;
  readonly id: unknown;
  readonly locking: ResolvedRowLocking;
  /** What a busy row does; only words for the metadata. */
  readonly onBusy: 'fail' | 'skip';
  /** Names class, method and decorator in errors. */
  readonly site: string;
  /** Whether a wrong key is the client's fault. */
  readonly fromRequest: boolean;
}

/** Who asks, and who hears of it. */
export interface Asker extends RefusalSite {
  /** Told when the rows are locked. */
  locked?(table: string, waitedMs: number): void;
}

/**
 * Runs a body in a transaction in which rows are locked: one that is open already, or one of its own.
 *
 * @throws RowLockedError, RowMissingError, InvalidKeyError; RowLockConflictError only when the
 *   transaction is its own, because only then a repetition begins it anew
 */
export async function underLock<T>(
  transactions: Transactions,
  request: RowRequest,
  asker: Asker,
  body: (held: Held) => Promise<T>,
): Promise<T> {
  const table = transactions.tableOf(request.target, request.site);
  const joined = transactions.current() !== undefined;
  try {
    return await withinTransaction(transactions, async (within) => {
      const locked = await take(transactions, within, table, request, asker);
      const read = async (): Promise<(Row | undefined)[]> => {
        const rows = await readRows(transactions, within.tx, request.target, table, locked);
        if (rows.includes(undefined)) refuseMissing(table, request, asker);
        return rows;
      };
      return body({ tx: within.tx, read });
    });
  } catch (error) {
    const state = joined ? undefined : conflictOf(error);
    if (state === undefined) throw error;
    const metadata = { code: 'row_conflict', table: table.name, sqlState: state } as const;
    throw new RowLockConflictError(metadata, asker, error);
  }
}

async function take(
  transactions: Transactions,
  within: Within<unknown>,
  table: Table,
  request: RowRequest,
  asker: Asker,
): Promise<readonly (LockedRowKey | undefined)[]> {
  const { id, locking, onBusy, fromRequest } = request;
  const { mode, patience } = locking;
  let locked: Locked;
  try {
    locked = await lockRows(transactions, within, { table, id, mode, patience });
  } catch (error) {
    if (!isKeyProblem(error)) throw error;
    const metadata = { code: 'key_invalid', policy: 'rowLock' } as const;
    throw new InvalidKeyError(metadata, asker, fromRequest, error.message);
  }
  if (locked.kind === 'busy') {
    const metadata = {
      code: 'row_locked',
      table: table.name,
      onBusy,
      waitedMs: locked.waitedMs,
    } as const;
    throw new RowLockedError(metadata, asker, locked.cause);
  }
  if (locked.rows.includes(undefined)) refuseMissing(table, request, asker);
  asker.locked?.(table.name, locked.waitedMs);
  return locked.rows;
}

function refuseMissing(table: Table, { locking }: RowRequest, asker: Asker): void {
  if (locking.onMissing === 'run') return;
  throw new RowMissingError({ code: 'row_missing', table: table.name }, asker);
}

/** One row for one key, a list for a list. */
export function shown(rows: readonly (Row | undefined)[], id: unknown): unknown {
  return Array.isArray(id) ? rows : rows[0];
}
