import type { Deadline } from '../../clock/deadline.js';
import { StoreError } from '../../errors/store.error.js';
import { LateError, type Patience } from './link.js';

/** One call of the store on its way: what it may have left in Redis, and why it can fail. */
export class Call implements Patience {
  /** Whether a command was handed to the socket: Redis may have executed it. */
  written = false;
  /** Whether an answer to it is outstanding. */
  sent = false;
  /** Whether a reply was lost and the command was sent again. */
  resent = false;
  #onEnd: (() => void) | undefined;

  constructor(readonly deadline: Deadline) {}

  /** One listener at a time: a call waits for one thing after the other. */
  onEnd(listener: () => void): void {
    this.#onEnd = listener;
  }

  /** Gives up, because the deadline passes first. @returns the reason to give */
  expire(cause: unknown): StoreError {
    this.#onEnd?.();
    if (this.sent) return new StoreError('timeout', 'Redis did not answer in time.');
    return new StoreError('disconnected', `There is no connection to Redis${because(cause)}.`, {
      cause,
    });
  }
}

/** Whether the connection broke before the answer came, as opposed to an answer that is an error. */
export function lostItsReply(error: unknown): boolean {
  if (error instanceof LateError || error instanceof StoreError) return false;
  return !(error instanceof Error && error.name === 'ReplyError');
}

/** Any failure of a call as the contract's own error. */
export function toStoreError(error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  if (error instanceof LateError) {
    return new StoreError('late', 'The call reached Redis after its deadline and changed nothing.');
  }
  if (lostItsReply(error)) {
    return new StoreError('disconnected', `The connection to Redis was lost${because(error)}.`, {
      cause: error,
    });
  }
  return new StoreError('error', `Redis answered with an error${because(error)}.`, {
    cause: error,
  });
}

function because(cause: unknown): string {
  return cause instanceof Error && cause.message ? ` (${cause.message})` : '';
}
