import { DefinitionError, show } from '../errors/definition.error.js';
import { NoTransactionError } from '../errors/no-transaction.error.js';
import { checkRowLocking } from '../policies/option-rules.js';
import { once } from '../process-wide.js';
import type { RowId, RowKey } from './row-key.js';
import {
  type LockClause,
  lockingOf,
  type ResolvedRowLocking,
  resolveRowLocking,
  type RowLocking,
  type RowLockingOfAll,
} from './row-locking.js';
import { isRowTarget, type RowTarget } from './target.js';
import type { Transactions } from './transactions.js';
import { type Asker, type RowRequest, shown, underLock } from './under-lock.js';

/** What is run while rows are locked, with the library's handle of the transaction. */
export type UnderLock<Rows, Tx, T> = (rows: Rows, tx: Tx) => T | Promise<T>;

class RowLocksService {
  /**
   * @param transactions `undefined` where the module was given none
   * @param asker who asks in errors and events: the running guarded method, if one runs
   */
  constructor(
    private readonly transactions: Transactions | undefined,
    private readonly asker: (service: string) => Asker,
  ) {}

  /**
   * Locks rows and runs a body with them, all in one transaction: the one that is open here, or a
   * new one, which is committed when the body ends and rolled back when it throws.
   *
   * @param target a table, or an entity or model of the database library
   * @param id the primary key of one row, or a list of them
   * @param body is given the row, or the rows in the order of their keys, freshly read under the lock,
   *   and the library's handle of the transaction; with `onMissing: 'run'`, `undefined` for a row that
   *   is not there
   * @param options `wait` (seconds or with a unit, default 5 s), `mode`, `onMissing`, `lockFree`
   * @returns what the body returns
   * @throws RowLockedError, RowMissingError, RowLockConflictError, InvalidKeyError, DefinitionError
   */
  withLock<R extends object, T, Tx = unknown>(
    target: RowTarget<R>,
    id: RowKey,
    body: UnderLock<R, Tx, T>,
    options?: RowLockingOfAll,
  ): Promise<T>;
  withLock<R extends object, T, Tx = unknown>(
    target: RowTarget<R>,
    ids: readonly RowKey[],
    body: UnderLock<R[], Tx, T>,
    options?: RowLockingOfAll,
  ): Promise<T>;
  withLock<R extends object, T, Tx = unknown>(
    target: RowTarget<R>,
    id: RowKey,
    body: UnderLock<R | undefined, Tx, T>,
    options: RowLocking,
  ): Promise<T>;
  withLock<R extends object, T, Tx = unknown>(
    target: RowTarget<R>,
    ids: readonly RowKey[],
    body: UnderLock<(R | undefined)[], Tx, T>,
    options: RowLocking,
  ): Promise<T>;
  async withLock<T>(
    target: RowTarget,
    id: RowId,
    body: UnderLock<never, never, T>,
    options: RowLocking = {},
  ): Promise<T> {
    const site = 'RowLocks.withLock';
    const transactions = this.#transactions(site);
    if (typeof body !== 'function') {
      throw new DefinitionError(`${site}: expected a function, got ${show(body)}`);
    }
    checkRowLocking(options, site);
    const locking = resolveRowLocking(options);
    const request = requestOf(target, id, locking, site);
    return underLock(transactions, request, this.asker(site), async (held) =>
      body(shown(await held.read(), id) as never, held.tx as never),
    );
  }

  /**
   * Locks rows in the transaction that is open here, until it ends.
   *
   * @param id the primary key of one row, or a list of them
   * @param options `clause`, from a closed list; without `NOWAIT` and `SKIP LOCKED` a row is waited
   *   for up to 5 s. Default `'FOR UPDATE'`.
   * @returns the row, or the rows in the order of their keys, freshly read under the lock
   * @throws NoTransactionError outside a transaction: the lock would end with its statement;
   *   RowLockedError, RowMissingError, InvalidKeyError, DefinitionError
   */
  lock<R extends object>(
    target: RowTarget<R>,
    id: RowKey,
    options?: { readonly clause?: LockClause },
  ): Promise<R>;
  lock<R extends object>(
    target: RowTarget<R>,
    ids: readonly RowKey[],
    options?: { readonly clause?: LockClause },
  ): Promise<R[]>;
  async lock(
    target: RowTarget,
    id: RowId,
    options: { readonly clause?: LockClause } = {},
  ): Promise<unknown> {
    const site = 'RowLocks.lock';
    const transactions = this.#transactions(site);
    const locking = lockingOf(options.clause ?? 'FOR UPDATE', site);
    const request = requestOf(target, id, locking, site);
    if (transactions.current() === undefined) throw new NoTransactionError(site);
    return underLock(transactions, request, this.asker(site), async (held) =>
      shown(await held.read(), id),
    );
  }

  #transactions(site: string): Transactions {
    if (this.transactions) return this.transactions;
    throw new DefinitionError(
      `${site}: expected CmdxModule.forRoot({ rowLock: new PgTransactions({ pool }) }) or another of the row lock adapters, got none`,
    );
  }
}

/** @throws DefinitionError for what is no target */
function requestOf(
  target: RowTarget,
  id: RowId,
  locking: ResolvedRowLocking,
  site: string,
): RowRequest {
  if (isRowTarget(target)) {
    return { target, id, locking, onBusy: 'fail', site, fromRequest: false };
  }
  throw new DefinitionError(
    `${site}: expected a table, { table, key }, an entity or { model }, got ${show(target)}`,
  );
}

/** Locks rows of the database. Injectable; one class per process. */
export const RowLocks: typeof RowLocksService = once('RowLocks', () => RowLocksService);
export interface RowLocks extends RowLocksService {}
