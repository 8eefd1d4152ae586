import type { WithRowLockOptions } from '../policies/options.js';
import type { RowKeyFunction, StaticRowKey } from '../row-lock/row-key.js';
import type { RowTarget } from '../row-lock/target.js';
import type { PolicyDecorator, Skips } from './guarded-method.js';
import { policyDecorator } from './policy-decorator.js';

/**
 * Opens a transaction, or joins the one that is open, locks rows in it by their primary key, runs the
 * body, and commits what it has opened: a pessimistic lock as in `SELECT ... FOR UPDATE`. It is the
 * innermost ring: each repetition of `@RetryOn` is a transaction of its own, and a lease outlives the
 * COMMIT. A body that throws, skips or fails rolls back what this call has opened.
 *
 * Forms: `(target, id, options)`, `(target, id)`, `(options)` on top of an inherited target, `()`
 * inherits as it is, `(false)` turns it off.
 *
 * @param target a table (`'invoices'`, `'billing.invoices'`), `{ table, key }`, or an entity or model
 *   of the database library that `forRoot({ rowLock })` was given
 * @param id the primary key: `input('id')`, `arg(0)`, a function of the arguments, a resolver; a
 *   value, an object of the key's columns, or a list of them
 * @param options `mode`, `wait` (seconds or with a unit; `0` gives up at once; default 5 s), `onBusy`,
 *   `onMissing`, `lockFree`, `if`, `unless`
 * @returns a decorator for a method that returns a Promise, or for a class
 * @throws DefinitionError for unknown options or values of the wrong kind, while the class is defined;
 *   at boot where the module has no `rowLock`. The call throws `RowLockedError`, `RowMissingError`,
 *   `KeyMissingError`, `InvalidKeyError`, and `RowLockConflictError` where it has opened the transaction.
 */
export function WithRowLock(off?: false): PolicyDecorator;
export function WithRowLock<
  const A extends readonly unknown[],
  const O extends WithRowLockOptions = Record<never, never>,
>(target: RowTarget, id: RowKeyFunction<A>, options?: O): PolicyDecorator<A, Skips<O, 'onBusy'>>;
export function WithRowLock<const O extends WithRowLockOptions = Record<never, never>>(
  target: RowTarget,
  id: StaticRowKey,
  options?: O,
): PolicyDecorator<readonly [], Skips<O, 'onBusy'>>;
export function WithRowLock<const O extends WithRowLockOptions>(
  options: O,
): PolicyDecorator<readonly [], Skips<O, 'onBusy'>>;
export function WithRowLock(...written: unknown[]): PolicyDecorator {
  return policyDecorator('rowLock', written) as PolicyDecorator;
}
