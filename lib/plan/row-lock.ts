import { DefinitionError } from '../errors/definition.error.js';
import { compileKey } from '../keys/compiled-key.js';
import { isPerTask, type KeySpec } from '../keys/key-resolver.js';
import type { WithRowLockOptions } from '../policies/options.js';
import { namedTable, type RowTarget } from '../row-lock/target.js';
import { resolveRowLocking, ROW_LOCKING_DEFAULTS } from '../row-lock/row-locking.js';
import { type CompiledRowLock, defined, type PlanContext, siteOf } from './context.js';
import type { MethodDeclaration } from './declaration.js';
import { compileGates } from './gates.js';
import { mergedOf } from './inheritance.js';

/** What an option is where nobody says otherwise. */
const ROW_LOCK_DEFAULTS = {
  ...ROW_LOCKING_DEFAULTS,
  onBusy: 'fail',
} as const satisfies WithRowLockOptions;

/** @throws DefinitionError for a lock of no row, a name that no table has, or a row that nobody locks */
export function compileRowLock(
  declaration: MethodDeclaration,
  context: PlanContext,
): CompiledRowLock | undefined {
  const merged = mergedOf(declaration, 'rowLock');
  const site = siteOf(declaration, 'rowLock');
  const { lockedRowAt } = declaration;
  if (!merged) {
    if (lockedRowAt === undefined) return undefined;
    throw new DefinitionError(
      `${declaration.task}: @LockedRow: expected @WithRowLock on the method, got none`,
    );
  }
  if (merged.subject === undefined) {
    throw new DefinitionError(`${site}: expected a table and a key, own or inherited, got none`);
  }
  const { target, id } = merged.subject as { readonly target: RowTarget; readonly id: KeySpec };
  const isNamed = typeof target === 'string' || (typeof target === 'object' && 'table' in target);
  if (isNamed) namedTable(target, site);
  const key = isPerTask(id) ? undefined : compileKey(id, declaration.shape, context.lookup);
  if (!key) throw new DefinitionError(`${site}: expected a key of a row, got perTask`);
  if (!context.checkTarget) {
    throw new DefinitionError(
      `${site}: expected CmdxModule.forRoot({ rowLock: new PgTransactions({ pool }) }) or another of the row lock adapters, got none`,
    );
  }
  context.checkTarget(target, site);
  const options = {
    ...ROW_LOCK_DEFAULTS,
    ...defined(context.defaults.rowLock),
    ...merged.options,
  };
  const { mode, wait, onMissing, lockFree } = options;
  return {
    target,
    key,
    locking: resolveRowLocking({ mode, wait, onMissing, lockFree }),
    onBusy: options.onBusy,
    gates: compileGates(options, declaration, site),
    rowAt: lockedRowAt,
    site,
    options: Object.freeze(options),
  };
}
