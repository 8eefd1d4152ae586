import { TaskFailedError } from '../errors/refusals.js';
import { brand, hasBrand } from '../errors/brand.js';

/** Ends the body by saying that there is nothing to do. */
export class SkipSignal extends Error {
  constructor(
    readonly reason: string | undefined,
    readonly metadata: Readonly<Record<string, unknown>>,
  ) {
    super(
      `skip(${reason === undefined ? '' : JSON.stringify(reason)}) was called outside the body of a guarded method`,
    );
    this.name = 'SkipSignal';
    brand(this, 'skip');
  }
}

export function isSkipSignal(error: unknown): error is SkipSignal {
  return hasBrand(error, 'skip');
}

/**
 * Ends the body of the running guarded method: there is nothing to do. The call returns
 * `undefined` (202 over HTTP); quota stays charged, the lease is released.
 *
 * @param metadata goes into the `Result`; its `code`, if a string, is shown to clients
 */
export function skip(reason?: string, metadata: Readonly<Record<string, unknown>> = {}): never {
  throw new SkipSignal(reason, metadata);
}

/** Ends an invocation whose subscriber has left before the body began. */
export function unsubscribed(): SkipSignal {
  return new SkipSignal('unsubscribed', {});
}

/**
 * Ends the body of the running guarded method: it cannot be done. The call throws
 * `TaskFailedError` (422 over HTTP) with this reason.
 *
 * @param reason shown to clients
 * @param metadata goes into the `Result` and the error; only its `code` is ever shown to clients
 */
export function fail(reason: string, metadata: Readonly<Record<string, unknown>> = {}): never {
  throw new TaskFailedError(reason, metadata);
}
