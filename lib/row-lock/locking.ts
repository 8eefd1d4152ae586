import { AsyncLocalStorage } from 'node:async_hooks';
import { KeyProblem } from '../keys/key-resolver.js';
import type { RowLockMode } from '../policies/options.js';
import { once } from '../process-wide.js';
import { lockStatement, type Patience } from './lock-statement.js';
import { keysOf, type KeyValues } from './row-key.js';
import { conflictOf, isImpossibleKey, LOCK_NOT_AVAILABLE, sqlStateOf } from './sql-state.js';
import type { RowTarget, Table } from './target.js';
import type { Row, Transactions } from './transactions.js';

/** What is wanted of a lock. */
export interface Wanted {
  readonly target: RowTarget;
  readonly table: Table;
  readonly id: unknown;
  readonly mode: RowLockMode;
  readonly patience: Patience;
}

/** What came of asking for a lock. */
export type Locked =
  | {
      readonly kind: 'locked';
      /** Of the rows that are locked. */
      readonly keys: readonly KeyValues[];
      /** Whether a row that was asked for is not there; of what `skip locked` leaves out nobody knows. */
      readonly missing: boolean;
      readonly waitedMs: number;
    }
  | { readonly kind: 'busy'; readonly cause: unknown; readonly waitedMs: number };

/** Whose transaction is open here, for {@link currentTransaction}. */
const ambient = once('transactions', () => new AsyncLocalStorage<Transactions | undefined>());
/** Of one transaction, the lock that is being asked for: savepoints of two would be entangled. */
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

/** Joins the transaction that is open here, or opens one. */
export function withinTransaction<Tx, T>(
  transactions: Transactions<Tx>,
  body: (within: Within<Tx>) => Promise<T>,
): Promise<T> {
  const outer = transactions.current();
  if (outer !== undefined) {
    return ambient.run(transactions, () => body({ tx: outer, joined: true }));
  }
  return transactions.run(() =>
    ambient.run(transactions, async () => {
      const tx = transactions.current();
      if (tx === undefined) throw new Error('The database library lost its transaction.');
      return body({ tx, joined: false });
    }),
  );
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
    const rows = await transactions.query(tx, sql, values);
    if (patience === 'skip locked') {
      const left = keys.filter((key) => rows.some((row) => isOf(table, row, key, 'column')));
      if (left.length === 0) return { kind: 'busy', cause: undefined, waitedMs: waitedMs() };
      return { kind: 'locked', keys: left, missing: false, waitedMs: waitedMs() };
    }
    const found = patience === 'nowait' ? rows.length : countOf(rows[0]);
    return { kind: 'locked', keys, missing: found < keys.length, waitedMs: waitedMs() };
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

/**
 * Reads the rows of these keys, as the database library maps them.
 *
 * @returns one per key, in their order; `undefined` where there is none
 */
export async function readRows<Tx>(
  transactions: Transactions<Tx>,
  tx: Tx,
  target: RowTarget,
  table: Table,
  keys: readonly KeyValues[],
): Promise<(Row | undefined)[]> {
  const rows = await transactions.load(tx, target, table, keys);
  return keys.map((key) => rows.find((row) => isOf(table, row, key, 'property')));
}

/** Compares texts: a driver may answer a number as a text, or a uuid in lower case. */
function isOf(table: Table, row: Row, key: KeyValues, named: 'column' | 'property'): boolean {
  return table.key.every((column, position) => {
    const value = (row as Readonly<Record<string, unknown>>)[column[named]];
    return String(value).toLowerCase() === String(key[position]).toLowerCase();
  });
}

function countOf(row: Row | undefined): number {
  return Number((row as { readonly locked?: unknown } | undefined)?.locked ?? 0);
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
