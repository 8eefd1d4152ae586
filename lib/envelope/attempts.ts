import { isThenable } from '../awaitable.js';
import { OUTCOME_TABLE } from '../policies/outcome-table.js';
import type { Body } from './envelope.js';
import { endingOf } from './endings.js';
import type { PlannedRetry } from './plan.js';
import type { Run } from './run.js';

/**
 * Runs the body again after an error that its retry lists, until it succeeds. Everything around it
 * stays as it is: one admission, one lease, one claim, one sample.
 *
 * @param first what the first run has thrown
 * @throws what the last run threw
 */
export async function runAgain(
  run: Run,
  body: Body,
  retry: PlannedRetry,
  first: unknown,
): Promise<unknown> {
  let error = first;
  let slept: number | undefined;
  for (let attempt = 1; ; attempt++) {
    slept = await sleepBefore(run, retry, error, attempt, slept);
    if (slept === undefined) throw error;
    run.retries = attempt;
    try {
      return await body();
    } catch (next) {
      error = next;
    }
  }
}

/** @returns milliseconds that were slept; `undefined` when the body is not repeated */
async function sleepBefore(
  run: Run,
  { policy, gates }: PlannedRetry,
  error: unknown,
  attempt: number,
  slept: number | undefined,
): Promise<number | undefined> {
  if (run.spoiled) return undefined;
  if (!OUTCOME_TABLE[endingOf(run, error).kind].retry || !policy.wants(error, attempt)) {
    return undefined;
  }
  for (const gate of gates) {
    const answer = gate.read(run, error, attempt);
    const passes: unknown = isThenable(answer) ? await answer : answer;
    if (Boolean(passes) !== gate.wanted) return undefined;
  }
  const delayMs = policy.delayMs(error, attempt, slept);
  if (delayMs === undefined || run.aborted) return undefined;
  const { telemetry, clock } = run.runtime;
  if (telemetry.hears('task_retried')) {
    telemetry.emit('task_retried', run, { attempt, delay: delayMs / 1_000, error });
  }
  try {
    await clock.sleep(delayMs, run.signal);
  } catch {
    // The signal has aborted: the caller gets what the body threw.
    return undefined;
  }
  return run.aborted ? undefined : delayMs;
}
