import { toMilliseconds } from '../clock/duration.js';
import { DefinitionError, show } from '../errors/definition.error.js';
import {
  InvalidKeyError,
  type RefusalSite,
  RowLockConflictError,
  RowLockedError,
  RowMissingError,
} from '../errors/refusals.js';
import { NoTransactionError } from '../errors/no-transaction.error.js';
import { isKeyProblem } from '../keys/key-resolver.js';
import { ROW_LOCK_MODES, type WithRowLockOptions } from '../policies/options.js';
import { once } from '../process-wide.js';
import type { Patience } from './lock-statement.js';
import {
  lockRows,
  type Locked,
  type LockedRowKey,
  readRows,
  type Within,
  withinTransaction,
} from './locking.js';
import type { RowId, RowKey } from './row-key.js';
import { conflictOf } from './sql-state.js';
import { isRowTarget, type RowTarget, type Table } from './target.js';
import type { Row, Transactions } from './transactions.js';

/** How rows are locked. */
export type RowLocking = Pick<WithRowLockOptions, 'mode' | 'wait' | 'onMissing' | 'lockFree'>;

/** The same, checked and with nothing left open. */
export interface ResolvedRowLocking {
  readonly mode: (typeof ROW_LOCK_MODES)[number];
  readonly patience: Patience;
  readonly onMissing: 'fail' | 'run';
}

const STRENGTHS = ['FOR UPDATE', 'FOR NO KEY UPDATE', 'FOR SHARE', 'FOR KEY SHARE'] as const;

/** How rows are locked, in the words of SQL. */
export type LockClause = `${(typeof STRENGTHS)[number]}${'' | ' NOWAIT' | ' SKIP LOCKED'}`;

/** How long a lock is waited for where nobody says. */
export const DEFAULT_WAIT = 5;

/** The same, where a row that is missing fails. */
export type RowLockingOfAll = RowLocking & { readonly onMissing?: 'fail' };

/** What is run while rows are locked, with the library's handle of the transaction. */
export type UnderLock<Rows, Tx, T> = (rows: Rows, tx: Tx) => T | Promise<T>;

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
    const locking = resolveRowLocking(options, site);
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

/** One row for one key, a list for a list. */
export function shown(rows: readonly (Row | undefined)[], id: unknown): unknown {
  return Array.isArray(id) ? rows : rows[0];
}

/** @throws DefinitionError for an option that is none, or a value of the wrong kind */
export function resolveRowLocking(options: RowLocking, site: string): ResolvedRowLocking {
  const { mode = 'update', wait = DEFAULT_WAIT, onMissing = 'fail', lockFree = false } = options;
  const known = ['mode', 'wait', 'onMissing', 'lockFree'];
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue;
    throw new DefinitionError(
      `${site}: unknown option "${name}"; expected one of ${known.join(', ')}`,
    );
  }
  if (!ROW_LOCK_MODES.includes(mode)) {
    throw new DefinitionError(
      `${site} option "mode": expected one of ${ROW_LOCK_MODES.join(', ')}, got ${show(mode)}`,
    );
  }
  if (onMissing !== 'fail' && onMissing !== 'run') {
    throw new DefinitionError(
      `${site} option "onMissing": expected 'fail' or 'run', got ${show(onMissing)}`,
    );
  }
  if (typeof lockFree !== 'boolean') {
    throw new DefinitionError(
      `${site} option "lockFree": expected true or false, got ${show(lockFree)}`,
    );
  }
  const waitMs = toMilliseconds(wait, `${site} option "wait"`, true);
  return { mode, onMissing, patience: lockFree ? 'skip locked' : waitMs === 0 ? 'nowait' : waitMs };
}

function lockingOf(clause: string, site: string): ResolvedRowLocking {
  const position = STRENGTHS.findIndex(
    (each) => clause === each || clause === `${each} NOWAIT` || clause === `${each} SKIP LOCKED`,
  );
  const mode = ROW_LOCK_MODES[position];
  if (!mode) {
    throw new DefinitionError(
      `${site} option "clause": expected one of ${STRENGTHS.join(', ')}, each also with NOWAIT or SKIP LOCKED, got ${show(clause)}`,
    );
  }
  const wait = clause.endsWith(' NOWAIT') ? 0 : DEFAULT_WAIT;
  return resolveRowLocking({ mode, wait, lockFree: clause.endsWith(' SKIP LOCKED') }, site);
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
