import { isObservable } from 'rxjs';
import { andThen, type Awaitable } from '../awaitable.js';
import { DefinitionError } from '../errors/definition.error.js';
import { messageOf } from '../errors/reading.js';
import { isRefusalError, isTaskFailedError } from '../errors/refusals.js';
import { enterRings } from './entrance.js';
import { type Outcome, rememberFailure } from './result.js';
import type { Run } from './run.js';
import type { Refusal } from './verdict.js';
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
export async function perform(run: Run, body: Body): Promise<unknown> {
  let value: unknown;
  try {
    begin(run);
    const entered = enterRings(run);
    const refusal = entered instanceof Promise ? await entered : entered;
    if (refusal) return await endRefused(run, refusal);
    value = await body();
    if (!run.handler && isObservable(value)) throw unannouncedStream(run);
  } catch (error) {
    if (run.ended) throw error;
    const outcome = outcomeOf(error);
    const left = leave(run);
    if (left) await left;
    finish(run, outcome);
    if (outcome.status === 'skipped') return undefined;
    throw error;
  }
  if (run.handler?.takesOver(run, value)) return value;
  const left = succeed(run, value);
  if (left) await left;
  return value;
}

/** Announces a run and keeps count of it for the shutdown. @throws ShuttingDownError for a new chain after it began */
export function begin(run: Run): void {
  const { telemetry } = run.runtime;
  if (telemetry.hears('task_started')) telemetry.emit('task_started', run, {});
  run.runtime.admit(run);
}

/** Gives back what is held, then ends the run as a success. */
export function succeed(run: Run, value: unknown): Promise<void> | undefined {
  const left = leave(run);
  if (left) return left.then(() => finish(run, { status: 'success', value }));
  finish(run, { status: 'success', value });
  return undefined;
}

/** Gives back what is held, then ends the run with whatever became of it. */
export function conclude(run: Run, outcome: Outcome): Awaitable<void> {
  return andThen(leave(run) as Awaitable<void>, () => finish(run, outcome));
}

async function endRefused(run: Run, refusal: Refusal): Promise<undefined> {
  const { metadata, skip } = refusal;
  const left = leave(run);
  if (left) await left;
  if (skip) {
    finish(run, { status: 'skipped', reason: metadata.code, metadata });
    return undefined;
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

/** Gives back what the run holds. Never changes what the caller gets: a failure is only told. */
export function leave(run: Run): Promise<void> | undefined {
  const steps = run.holds;
  if (steps.length === 0) return undefined;
  run.holds = [];
  run.lock = undefined;
  try {
    const replies = run.runtime.leaveStore(steps);
    return replies instanceof Promise
      ? replies.then(
          () => undefined,
          (error) => tellFailedLeave(run, error),
        )
      : undefined;
  } catch (error) {
    tellFailedLeave(run, error);
    return undefined;
  }
}

function tellFailedLeave(run: Run, error: unknown): void {
  const { telemetry } = run.runtime;
  if (telemetry.hears('store_error')) {
    telemetry.emit('store_error', run, { operation: 'leave', policies: ['lock'], error });
  }
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
