import { brand, hasBrand } from './brand.js';
import type { PolicyName } from './refusals.js';

/**
 * The run was silent for longer than its lease, and another has taken over: the reason with which
 * the signal of the old run aborts. Whatever the old run still answers is not recorded.
 */
export class LeaseLostError extends Error {
  readonly code = 'lease_lost';

  constructor(
    /** `ClassName.methodName` of the run that lost it. */
    readonly task: string,
    readonly policy: PolicyName,
  ) {
    super(`${task}: the lease of its ${policy} policy ran out and another run has taken over`);
    this.name = 'LeaseLostError';
    brand(this, 'lease_lost');
  }
}

/** Whether `error` is a {@link LeaseLostError}, from whichever copy of the package. */
export function isLeaseLostError(error: unknown): error is LeaseLostError {
  return hasBrand(error, 'lease_lost');
}
