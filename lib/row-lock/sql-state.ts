/** A lock was not to be had, at once or within `lock_timeout`. */
export const LOCK_NOT_AVAILABLE = '55P03';
/** Whatever is asked of a transaction in which a statement has failed. */
export const IN_FAILED_TRANSACTION = '25P02';
/** A deadlock was found, and this transaction chosen to end it. */
const DEADLOCK_DETECTED = '40P01';
/** The isolation level cannot be kept if this transaction goes on. */
const SERIALIZATION_FAILURE = '40001';
/** A text that is none of the column's type, or a number that does not fit. */
const NOT_OF_THE_TYPE: ReadonlySet<string> = new Set(['22P02', '22003', '22007', '22008']);

/** Where libraries hide the error of the driver. */
const HIDDEN_IN = [
  'driverError',
  'original',
  'originalError',
  'cause',
  'meta',
  'driverAdapterError',
];
const CODES = ['originalCode', 'sqlState', 'code'];
const DEEPEST = 8;

/** Five letters and digits; codes of Node (`EPIPE`) have no digit, those of Prisma (`P2010`) begin otherwise. */
const SQL_STATE = /^(?=.*\d)(?!P[1-9])[0-9A-Z]{5}$/;

/**
 * The SQLSTATE of an error (PostgreSQL appendix A), wherever a database library keeps it:
 * `code`, `driverError.code`, `cause.code`, `original.code`,
 * `meta.driverAdapterError.cause.originalCode`.
 *
 * @returns `undefined` for an error that is none of the database's
 */
export function sqlStateOf(error: unknown, depth = 0): string | undefined {
  if (typeof error !== 'object' || error === null || depth > DEEPEST) return undefined;
  const properties = error as Readonly<Record<string, unknown>>;
  for (const name of HIDDEN_IN) {
    const found = sqlStateOf(properties[name], depth + 1);
    if (found) return found;
  }
  return CODES.map((name) => properties[name]).find(isSqlState);
}

function isSqlState(code: unknown): code is string {
  return typeof code === 'string' && SQL_STATE.test(code);
}

/**
 * The SQLSTATE of an error after which the transaction has to be begun anew, and then may well
 * succeed; `undefined` for any other.
 */
export function conflictOf(error: unknown): string | undefined {
  const state = sqlStateOf(error);
  return state === DEADLOCK_DETECTED || state === SERIALIZATION_FAILURE ? state : undefined;
}

/** What a server says of a connection that ends: it may have done what it was asked before, or not. */
const CONNECTION_ENDS = /^(?:08|57P0)/;

/** Whether the database itself has said no, and not just fallen silent. */
export function isAnswered(error: unknown): boolean {
  const state = sqlStateOf(error);
  return state !== undefined && !CONNECTION_ENDS.test(state);
}

/** Whether a key can be no value of its column. */
export function isImpossibleKey(state: string | undefined): boolean {
  return state !== undefined && NOT_OF_THE_TYPE.has(state);
}
