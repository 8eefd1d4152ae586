import { isObservable } from 'rxjs';
import { andThen, type Awaitable } from '../awaitable.js';
import { DefinitionError } from '../errors/definition.error.js';
import { messageOf } from '../errors/reading.js';
import { isRefusalError, isTaskFailedError } from '../errors/refusals.js';
import type { Ending } from '../policies/policy.js';
import { enterRings } from './entrance.js';
import { runAgain } from './attempts.js';
import { checkOutput } from './checks.js';
import { endingOf, UNANSWERED, UNUSED } from './endings.js';
import { leave } from './leaving.js';
import { type Outcome, rememberFailure } from './result.js';
import type { Run } from './run.js';
import type { Refusal } from './verdict.js';
import { lockingRows } from './row-lock.js';
import { isSkipSignal } from './signals.js';

/** The bare method, ready to be called. */
export type Body = () => unknown;

/**
 * Runs one invocation: rings in, body, rings out. A handler's success stays open, because it ends
 * when its answer has been made; everything else is over when this settles.
 *
 * @returns the body's value; `undefined` after a skip
 * @throws the refusal, or the very error that the body threw
 */
export async function perform(run: Run, bare: Body): Promise<unknown> {
  const { rowLock } = run.plan;
  const body = rowLock ? lockingRows(run, rowLock, bare) : bare;
  let value: unknown;
  try {
    begin(run);
    const entered = enterRings(run);
    const refusal = entered instanceof Promise ? await entered : entered;
    if (refusal) return await endRefused(run, refusal);
    run.startWork();
    try {
      value = await body();
    } catch (error) {
      if (!run.plan.retry) throw error;
      value = await runAgain(run, body, run.plan.retry, error);
    }
    // A handler's is unwrapped by Nest, later than its output could be checked.
    if (isObservable(value) && (!run.handler || run.plan.output || run.plan.retry)) {
      throw unannouncedStream(run);
    }
    if (run.plan.output) value = await checkOutput(run, value);
  } catch (error) {
    if (run.ended) throw error;
    const outcome = outcomeOf(error);
    const left = leave(run, endingOf(run, error));
    if (left) await left;
    finish(run, outcome);
    if (outcome.status === 'skipped') return undefined;
    throw error;
  }
  if (run.handler?.takesOver(run, value)) return value;
  // Of a handler whose answer nobody waits for, what it would have been is not known.
  const left = leave(run, run.handler ? UNANSWERED : { kind: 'returned', value, handled: false });
  if (left) await left;
  finish(run, { status: 'success', value });
  return value;
}

/** Announces a run and keeps count of it for the shutdown. @throws ShuttingDownError for a new chain after it began */
export function begin(run: Run): void {
  const { telemetry } = run.runtime;
  if (telemetry.hears('task_started')) telemetry.emit('task_started', run, {});
  run.runtime.admit(run);
}

/** Gives back what is held, then ends the run with whatever became of it. */
export function conclude(run: Run, outcome: Outcome, ending: Ending): Awaitable<void> {
  return andThen(leave(run, ending) as Awaitable<void>, () => finish(run, outcome));
}

/** @returns what a duplicate is given again, `undefined` after a skip */
async function endRefused(run: Run, refusal: Refusal): Promise<unknown> {
  const { metadata, skip, replay } = refusal;
  const left = leave(run, UNUSED);
  if (left) await left;
  if (replay ?? skip) {
    finish(run, { status: 'skipped', reason: metadata.code, metadata, replay });
    return replay?.value;
  }
  const error = refusal.error();
  finish(run, { status: 'failed', error, reason: error.message, metadata });
  throw error;
}

/** What an error that ended the body, or kept it from beginning, makes of the invocation. */
export function outcomeOf(error: unknown): Outcome {
  if (isSkipSignal(error)) {
    return { status: 'skipped', reason: error.reason, metadata: error.metadata };
  }
  if (isTaskFailedError(error)) {
    return { status: 'failed', error, reason: error.reason, metadata: error.metadata };
  }
  return {
    status: 'failed',
    error,
    reason: messageOf(error),
    metadata: isRefusalError(error) ? error.metadata : {},
  };
}

export function finish(run: Run, outcome: Outcome): void {
  const { runtime } = run;
  run.end(outcome);
  runtime.dismiss(run);
  if (outcome.status === 'failed') rememberFailure(outcome.error, run.result, run.parent?.tid);
  if (runtime.telemetry.hears('task_executed')) {
    runtime.telemetry.emit('task_executed', run, { result: run.result });
  }
  if (!run.awaited) run.forget();
}

export function unannouncedStream(run: Run): DefinitionError {
  return new DefinitionError(
    `${run.task}: expected a method that returns a Promise, got an Observable; write the return type Observable<...> on the method, with Observable imported as a value (not by "import type"), or pass the option { stream: true }`,
  );
}
