import type { Invocation } from '../invocation.js';
import type { CompiledKey } from '../keys/compiled-key.js';
import type { CompiledFingerprint } from '../keys/fingerprint.js';
import type { Policy } from '../policies/policy.js';
import type { RetryPolicy } from '../policies/retry.js';
import type { Schema } from '../policies/schema.js';
import type { ResolvedRowLocking } from '../row-lock/row-locking.js';
import type { RowTarget } from '../row-lock/target.js';

/** A gate as the envelope uses it: one function of the invocation, whatever form it was written in. */
export interface CompiledGate {
  readonly read: (invocation: Invocation) => unknown;
  /** Whether `read` is known to return a promise. */
  readonly async: boolean;
  /** The answer that lets the policy apply: true for `if`, false for `unless`. */
  readonly wanted: boolean;
}

/** One ring of one method: when it applies, under which key, and what it asks for. */
export interface PlannedRing {
  readonly policy: Policy;
  readonly gates: readonly CompiledGate[];
  /** `undefined`: the key is the task itself. */
  readonly key: CompiledKey | undefined;
  /** What a call with the same key is compared by, if it is. */
  readonly fingerprint?: CompiledFingerprint | undefined;
  /** Namespace and task, or the name that stands for it. */
  readonly keyBase: string;
  readonly onBlank: 'bypass' | 'fail';
  /**
   * Whether a gate, the key or the fingerprint is known to be asynchronous: then it is not touched
   * before the outer rings have let pass. Learned at the first call of a plain function that returns a promise.
   */
  async: boolean;
}

/** A gate of a retry: asked about what was thrown, before the sleep. */
export interface CompiledRetryGate {
  readonly read: (invocation: Invocation, error: unknown, attempt: number) => unknown;
  /** The answer that lets the body be repeated: true for `if`, false for `unless`. */
  readonly wanted: boolean;
}

/** How the body of a method is repeated. */
export interface PlannedRetry {
  readonly policy: RetryPolicy;
  readonly gates: readonly CompiledRetryGate[];
}

/** Which rows are locked around a body, and how. */
export interface PlannedRowLock {
  readonly target: RowTarget;
  readonly key: CompiledKey;
  readonly locking: ResolvedRowLocking;
  readonly onBusy: 'fail' | 'skip';
  readonly gates: readonly CompiledGate[];
  /** The position of the parameter that is given the row, if there is one. */
  readonly rowAt: number | undefined;
  /** Names class, method and decorator in errors. */
  readonly site: string;
}

/** What will happen around one method of one class. Frozen, made once. */
export interface Plan {
  /** `ClassName.methodName`. */
  readonly task: string;
  readonly method: PropertyKey;
  /** The outermost wrapper's rank: a lower one met inside its envelope passes through. */
  readonly rank: number;
  /** One schema per argument, where the arguments are checked; none for one that is taken as it is. */
  readonly inputs?: readonly (Schema | undefined)[] | undefined;
  /** In the order of the envelope. */
  readonly rings: readonly PlannedRing[];
  readonly retry?: PlannedRetry | undefined;
  readonly rowLock?: PlannedRowLock | undefined;
  /** What a return value has to fit. */
  readonly output?: Schema | undefined;
  /** Whether the method returns an Observable. */
  readonly stream: boolean;
  /** Whether a ring wants to know what a client was answered, so that it has to be looked at. */
  readonly readsAnswers: boolean;
}
