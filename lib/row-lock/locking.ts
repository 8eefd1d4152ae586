import { AsyncLocalStorage } from 'node:async_hooks';
import {
  isTransactionAbortedError,
  TransactionAbortedError,
} from '../errors/transaction-aborted.error.js';
import { TransactionInDoubtError } from '../errors/transaction-in-doubt.error.js';
import { KeyProblem } from '../keys/key-resolver.js';
import type { RowLockMode } from '../policies/options.js';
import { once } from '../process-wide.js';
import { keyAlias, lockStatement, type Patience } from './lock-statement.js';
import { keysOf, type KeyValues } from './row-key.js';
import {
  conflictOf,
  IN_FAILED_TRANSACTION,
  isAnswered,
  isImpossibleKey,
  LOCK_NOT_AVAILABLE,
  sqlStateOf,
} from './sql-state.js';
import type { RowTarget, Table } from './target.js';
import type { Row, Transactions } from './transactions.js';

/** What is wanted of a lock. */
export interface Wanted {
  readonly table: Table;
  readonly id: unknown;
  readonly mode: RowLockMode;
  readonly patience: Patience;
}

/** A row that is locked. */
export interface LockedRowKey {
  /** As it was asked for. */
  readonly key: KeyValues;
  /** As the database has it: a number that was asked for as a text, a uuid in lower case. */
  readonly stored: readonly unknown[];
}

/** What came of asking for a lock. */
export type Locked =
  | {
      readonly kind: 'locked';
      /** In the order in which they were asked for; `undefined` for a row that is not there. */
      readonly rows: readonly (LockedRowKey | undefined)[];
      readonly waitedMs: number;
    }
  | { readonly kind: 'busy'; readonly cause: unknown; readonly waitedMs: number };

/** Whose transaction is open here, for {@link currentTransaction}. */
const ambient = once('transactions', () => new AsyncLocalStorage<Transactions | undefined>());
/** Of one transaction, what is being asked: savepoints of two would be entangled. */
const underWay = once('row locks under way', () => new WeakMap<object, Promise<unknown>>());

const SAVEPOINT = 'cmdx_row_lock';

/**
 * The database library's own handle of the transaction that is open here: a `PoolClient`, an
 * `EntityManager`, a transaction client of Prisma.
 *
 * @returns `undefined` outside a transaction
 */
export function currentTransaction<Tx>(): Tx | undefined {
  return ambient.getStore()?.current() as Tx | undefined;
}

/** Somebody who runs inside a transaction. */
export interface Within<Tx> {
  readonly tx: Tx;
  /** Whether the transaction is somebody else's: what fails in it must not spoil it. */
  readonly joined: boolean;
}

/**
 * Joins the transaction that is open here, or opens one.
 *
 * @throws TransactionAbortedError or TransactionInDoubtError where the body has ended, and what it did is
 *   not saved or may not be
 */
export async function withinTransaction<Tx, T>(
  transactions: Transactions<Tx>,
  body: (within: Within<Tx>) => Promise<T>,
): Promise<T> {
  const outer = transactions.current();
  if (outer !== undefined) {
    return ambient.run(transactions, () => body({ tx: outer, joined: true }));
  }
  let committing = false;
  try {
    return await transactions.run(() =>
      ambient.run(transactions, async () => {
        const tx = transactions.current();
        if (tx === undefined) throw new Error('The database library lost its transaction.');
        const value = await body({ tx, joined: false });
        if (!transactions.noticesRollback) await checkSound(transactions, tx);
        committing = true;
        return value;
      }),
    );
  } catch (error) {
    giveWords(error);
    if (!committing || isAnswered(error) || isTransactionAbortedError(error)) throw error;
    throw new TransactionInDoubtError(error);
  }
}

/** Node says nothing itself where each of several addresses has refused, as `localhost` may have two. */
function giveWords(error: unknown): void {
  const several = (error ?? {}) as { message?: string; readonly errors?: readonly Error[] };
  if (several.message !== '' || !Array.isArray(several.errors)) return;
  several.message = several.errors.map(({ message }) => message).join(', ');
}

/** @throws TransactionAbortedError where a COMMIT would be a ROLLBACK that nobody is told of */
async function checkSound<Tx>(transactions: Transactions<Tx>, tx: Tx): Promise<void> {
  try {
    await transactions.query(tx, 'SELECT 1', []);
  } catch (error) {
    if (sqlStateOf(error) === IN_FAILED_TRANSACTION) throw new TransactionAbortedError(error);
    throw error;
  }
}

/**
 * Locks rows in a transaction. A lock that is not to be had leaves a joined transaction as it was,
 * by a savepoint.
 *
 * @throws KeyProblem for what can be no key of the table; what the database says, otherwise
 */
export function lockRows<Tx>(
  transactions: Transactions<Tx>,
  within: Within<Tx>,
  wanted: Wanted,
): Promise<Locked> {
  const { tx, joined } = within;
  if (!joined) return ask(transactions, tx, wanted);
  return inTurn(tx as object, async () => {
    const say = (sql: string): Promise<unknown> => transactions.query(tx, sql, []);
    await say(`SAVEPOINT ${SAVEPOINT}`);
    try {
      const locked = await ask(transactions, tx, wanted);
      await say(locked.kind === 'busy' ? `ROLLBACK TO ${SAVEPOINT}` : `RELEASE ${SAVEPOINT}`);
      return locked;
    } catch (error) {
      // Where even that fails the connection is gone, and the first error says why.
      if (!conflictOf(error)) {
        await say(`ROLLBACK TO ${SAVEPOINT}`).catch(() => undefined);
      }
      throw error;
    }
  });
}

async function ask<Tx>(
  transactions: Transactions<Tx>,
  tx: Tx,
  { table, id, mode, patience }: Wanted,
): Promise<Locked> {
  const keys = keysOf(table, id);
  const { sql, values } = lockStatement(table, keys, mode, patience);
  const since = performance.now();
  const waitedMs = (): number => performance.now() - since;
  try {
    const rows = rowsInOrder(table, keys, await transactions.query(tx, sql, values));
    if (patience !== 'skip locked') return { kind: 'locked', rows, waitedMs: waitedMs() };
    // What is left out is held by others, or not there: nobody knows.
    const found = rows.filter((row) => row !== undefined);
    if (found.length === 0) return { kind: 'busy', cause: undefined, waitedMs: waitedMs() };
    return { kind: 'locked', rows: found, waitedMs: waitedMs() };
  } catch (error) {
    const state = sqlStateOf(error);
    if (state === LOCK_NOT_AVAILABLE) {
      return { kind: 'busy', cause: error, waitedMs: waitedMs() };
    }
    if (isImpossibleKey(state)) {
      throw new KeyProblem(`expected a key of ${table.name}, got one that its column cannot hold`);
    }
    throw error;
  }
}

function rowsInOrder(
  table: Table,
  keys: readonly KeyValues[],
  answer: readonly Row[],
): (LockedRowKey | undefined)[] {
  const rows: (LockedRowKey | undefined)[] = keys.map(() => undefined);
  for (const each of answer as readonly Readonly<Record<string, unknown>>[]) {
    const place = each['place'];
    if (place === null) continue;
    const key = keys[Number(place)] as KeyValues;
    const stored = table.key.map((_, position) => each[keyAlias(position)]);
    rows[Number(place)] = { key, stored };
  }
  return rows;
}

/**
 * Reads rows that are locked, as the database library maps them.
 *
 * @returns in the same order; `undefined` for those that are missing, or that the library does not show
 */
export async function readRows<Tx>(
  transactions: Transactions<Tx>,
  tx: Tx,
  target: RowTarget,
  table: Table,
  locked: readonly (LockedRowKey | undefined)[],
): Promise<(Row | undefined)[]> {
  const keys = locked.flatMap((each) => (each ? [each.key] : []));
  if (keys.length === 0) return locked.map(() => undefined);
  const rows = await inTurn(tx as object, () => transactions.load(tx, target, table, keys));
  if (locked.length === 1) return [rows[0]];
  return locked.map((each) => each && rows.find((row) => isOf(table, row, each)));
}

function isOf(table: Table, row: Row, { key, stored }: LockedRowKey): boolean {
  return table.key.every(({ property }, position) => {
    const value = textOf((row as Readonly<Record<string, unknown>>)[property]);
    return value === textOf(stored[position]) || value === textOf(key[position]);
  });
}

/** Drivers and libraries differ in what they answer a number with, or a time. */
function textOf(value: unknown): string {
  return value instanceof Date ? value.toISOString() : String(value);
}

/** One after the other, whatever became of the one before. */
async function inTurn<T>(tx: object, task: () => Promise<T>): Promise<T> {
  const before = underWay.get(tx) ?? Promise.resolve();
  const mine = before.then(task, task);
  underWay.set(
    tx,
    mine.catch(() => undefined),
  );
  return mine;
}
