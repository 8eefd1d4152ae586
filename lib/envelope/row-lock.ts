import { isObservable } from 'rxjs';
import { DefinitionError } from '../errors/definition.error.js';
import { InvalidKeyError, isRowLockedError, KeyMissingError } from '../errors/refusals.js';
import { isKeyProblem } from '../keys/key-resolver.js';
import { type Asker, shown, underLock } from '../row-lock/under-lock.js';
import { sqlStateOf } from '../row-lock/sql-state.js';
import type { Transactions } from '../row-lock/transactions.js';
import type { Body } from './envelope.js';
import { newId } from './ids.js';
import type { PlannedRowLock } from './plan.js';
import { passesGates } from './resolution.js';
import type { Run } from './run.js';
import { openRun, scopes } from './scope.js';
import { SkipSignal } from './signals.js';

/**
 * Makes of a body one that runs in a transaction in which its row is locked. Each call of it is a
 * transaction of its own, unless one is open; the key is asked for once.
 */
export function lockingRows(run: Run, planned: PlannedRowLock, body: Body): Body {
  let resolved: Promise<{ readonly applies: boolean; readonly id?: unknown }> | undefined;
  return async () => {
    const { applies, id } = await (resolved ??= resolve(run, planned));
    if (!applies) return callBody(run, planned, body);
    const { target, locking, onBusy, site, key } = planned;
    const request = { target, id, locking, onBusy, site, fromRequest: isFromRequest(run, key) };
    const transactions = run.runtime.transactions as Transactions;
    // Asked before: what fails while the lock is asked for spoils a joined transaction as well.
    const joined = transactions.current() !== undefined;
    try {
      return await underLock(transactions, request, asker(run), async (held) => {
        let row: Promise<unknown> | undefined;
        run.readRow = () => (row ??= held.read().then((rows) => shown(rows, id)));
        const value = await callBody(run, planned, body);
        if (isObservable(value)) throw streamedFrom(planned);
        return value;
      });
    } catch (error) {
      if (joined && sqlStateOf(error) !== undefined) run.spoiled = true;
      // Its own, not one of a nested call.
      const busy = isRowLockedError(error) && error.tid === run.tid;
      if (busy && onBusy === 'skip') throw new SkipSignal(error.code, error.metadata as never);
      throw error;
    } finally {
      run.readRow = undefined;
    }
  };
}

/** Where a gate has excluded the call there is no row, whatever the caller has passed in its place. */
async function callBody(run: Run, { rowAt }: PlannedRowLock, body: Body): Promise<unknown> {
  if (rowAt === undefined) return body();
  const args = [...run.args];
  while (args.length < rowAt) args.push(undefined);
  args[rowAt] = await run.row;
  run.args = args;
  return body();
}

/** It would go on when the transaction has ended. */
function streamedFrom({ site }: PlannedRowLock): DefinitionError {
  return new DefinitionError(
    `${site}: expected a method that returns a Promise, got one that returns an Observable`,
  );
}

async function resolve(
  run: Run,
  planned: PlannedRowLock,
): Promise<{ readonly applies: boolean; readonly id?: unknown }> {
  if (!(await passesGates(planned, run, 0))) return { applies: false };
  const id = await readKey(run, planned);
  if (id !== undefined && id !== null && id !== '') return { applies: true, id };
  throw new KeyMissingError(
    { code: 'key_missing', policy: 'rowLock' },
    run,
    isFromRequest(run, planned.key),
  );
}

async function readKey(run: Run, { key }: PlannedRowLock): Promise<unknown> {
  try {
    return await key.read(run);
  } catch (error) {
    if (!isKeyProblem(error)) throw error;
    const metadata = { code: 'key_invalid', policy: 'rowLock' } as const;
    throw new InvalidKeyError(metadata, run, isFromRequest(run, key), error.message);
  }
}

/** A handler's arguments are the request's, so a wrong key is the client's fault. */
function isFromRequest(run: Run, key: PlannedRowLock['key']): boolean {
  return run.handler !== undefined || key.fromRequest;
}

function asker(run: Run): Asker {
  const { task, tid, runtime } = run;
  return {
    task,
    tid,
    locked: (table, waitedMs) => {
      if (!runtime.telemetry.hears('row_locked')) return;
      runtime.telemetry.emit('row_locked', run, { table, waitedMs });
    },
  };
}

/** Who asks a service for a lock: the guarded method that is running here, or nobody in particular. */
export function askerHere(service: string): Asker {
  const run = openRun(scopes.getStore());
  return run ? asker(run) : { task: service, tid: newId() };
}
