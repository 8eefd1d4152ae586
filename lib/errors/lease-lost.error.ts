import { brand, hasBrand } from './brand.js';
import type { PolicyName } from './refusals.js';

/**
 * The claim of a run is gone: the run was silent for longer than its lease and another has taken over,
 * or the record was forgotten or lost. The reason with which the signal of that run aborts. What the
 * run still answers is recorded only if nobody has begun anew.
 */
export class LeaseLostError extends Error {
  readonly code = 'lease_lost';

  constructor(
    /** `ClassName.methodName` of the run that lost it. */
    readonly task: string,
    readonly policy: PolicyName,
  ) {
    super(
      `${task}: the claim of its ${policy} policy is gone: another run has taken over, or the record was forgotten or lost`,
    );
    this.name = 'LeaseLostError';
    brand(this, 'lease_lost');
  }
}

/** Whether `error` is a {@link LeaseLostError}, from whichever copy of the package. */
export function isLeaseLostError(error: unknown): error is LeaseLostError {
  return hasBrand(error, 'lease_lost');
}
