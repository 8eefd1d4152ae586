import { toMilliseconds } from '../clock/duration.js';
import { DefinitionError, show } from '../errors/definition.error.js';
import { ROW_LOCK_MODES, type WithRowLockOptions } from '../policies/options.js';
import type { Patience } from './lock-statement.js';

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

/** The same, where a row that is missing fails. */
export type RowLockingOfAll = RowLocking & { readonly onMissing?: 'fail' };

/** What an option is where nobody says otherwise. */
export const ROW_LOCKING_DEFAULTS = {
  mode: 'update',
  wait: 5,
  onMissing: 'fail',
  lockFree: false,
} as const satisfies RowLocking;

/** Fills in what is left open in options that are checked. */
export function resolveRowLocking(options: RowLocking): ResolvedRowLocking {
  const {
    mode = ROW_LOCKING_DEFAULTS.mode,
    wait = ROW_LOCKING_DEFAULTS.wait,
    onMissing = ROW_LOCKING_DEFAULTS.onMissing,
    lockFree = ROW_LOCKING_DEFAULTS.lockFree,
  } = options;
  const waitMs = toMilliseconds(wait, 'wait', true);
  return { mode, onMissing, patience: lockFree ? 'skip locked' : waitMs === 0 ? 'nowait' : waitMs };
}

/** @throws DefinitionError for a clause that is none of the list */
export function lockingOf(clause: string, site: string): ResolvedRowLocking {
  const position = STRENGTHS.findIndex(
    (each) => clause === each || clause === `${each} NOWAIT` || clause === `${each} SKIP LOCKED`,
  );
  const mode = ROW_LOCK_MODES[position];
  if (!mode) {
    throw new DefinitionError(
      `${site} option "clause": expected one of ${STRENGTHS.join(', ')}, each also with NOWAIT or SKIP LOCKED, got ${show(clause)}`,
    );
  }
  if (clause.endsWith(' NOWAIT')) return resolveRowLocking({ mode, wait: 0 });
  return resolveRowLocking({ mode, lockFree: clause.endsWith(' SKIP LOCKED') });
}
