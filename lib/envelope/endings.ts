import { attempt } from '../errors/reading.js';
import { isRefusalError, isTaskFailedError } from '../errors/refusals.js';
import { isTransactionInDoubtError } from '../errors/transaction-in-doubt.error.js';
import type { Ending } from '../policies/policy.js';
import type { Run } from './run.js';
import { isSkipSignal } from './signals.js';

/** The body never ran: a ring further in said no, or the caller has left. */
export const UNUSED: Ending = Object.freeze({ kind: 'unused' });
/** The body succeeded, but no answer was made of what it returned. */
export const UNANSWERED: Ending = Object.freeze({ kind: 'unanswered' });
/** A handler's answer was made, and says that the server has failed. */
export const SERVER_ERROR: Ending = Object.freeze({ kind: 'server_error' });
const SKIPPED: Ending = Object.freeze({ kind: 'skipped' });
const FAILED: Ending = Object.freeze({ kind: 'failed' });
const OUTPUT_INVALID: Ending = Object.freeze({ kind: 'output_invalid' });

/** A status from here on is the server's own fault (RFC 9110 section 15.6). */
export const FIRST_SERVER_ERROR = 500;

/** Which row of the outcome table an error is that ended a run. */
export function endingOf(run: Run, error: unknown): Ending {
  if (isSkipSignal(error)) return SKIPPED;
  if (isTaskFailedError(error)) return FAILED;
  if (run.outputRefused) return OUTPUT_INVALID;
  if (isRefusalError(error)) {
    // Its own input was refused, or what it was told before the body began.
    if (!run.working)
      return error.code === 'input_invalid' ? { kind: 'input_invalid', error } : UNUSED;
    if (error.code === 'row_conflict') return { kind: 'conflict', error };
    // Of a nested call, or of the row to lock. One that ran and answered nonsense has failed; of the others no body has run.
    const ran = error.code === 'output_invalid';
    return { kind: ran ? 'nested_output_invalid' : 'refused', error };
  }
  if (!run.working) return UNUSED;
  if (isTransactionInDoubtError(error)) return { kind: 'in_doubt', error };
  if (run.aborted || attempt(() => (error as Error).name === 'AbortError')) {
    return { kind: 'aborted', error };
  }
  const status = attempt(() => statusOf(error));
  if (status !== undefined && status < FIRST_SERVER_ERROR) return { kind: 'client_error', error };
  return { kind: 'threw', error };
}

/** The status of a Nest `HttpException`, from whichever copy of Nest. */
function statusOf(error: unknown): number | undefined {
  const { getStatus } = (error ?? {}) as { getStatus?: unknown };
  const status: unknown = typeof getStatus === 'function' ? getStatus.call(error) : undefined;
  return typeof status === 'number' ? status : undefined;
}
