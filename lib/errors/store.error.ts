import { brand, hasBrand } from './brand.js';

/**
 * Why a store gave no answer.
 *
 * - `timeout`: none came in time
 * - `late`: the call reached the store after its deadline, which then changed nothing
 * - `disconnected`: there is no connection
 * - `full`: no room, and nothing that may be dropped
 * - `closed`: the application has shut the store down
 * - `error`: the store answered with an error of its own
 */
export type StoreErrorReason = 'timeout' | 'late' | 'disconnected' | 'full' | 'closed' | 'error';

/** A store could not answer. The envelope turns it into a `StoreUnavailableError` that names the policy. */
export class StoreError extends Error {
  readonly code = 'store_error';

  constructor(
    readonly reason: StoreErrorReason,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
    this.name = 'StoreError';
    brand(this, 'store_error');
  }
}

/** Whether `error` is a {@link StoreError}, from whichever copy of the package. */
export function isStoreError(error: unknown): error is StoreError {
  return hasBrand(error, 'store_error');
}
