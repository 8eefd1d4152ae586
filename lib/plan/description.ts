import type { PolicyName } from '../errors/refusals.js';
import type { RowTarget } from '../row-lock/target.js';
import type { CompiledPlan } from './compiler.js';
import type { CompiledRowLock } from './context.js';

/** A policy as it is in effect on a method. Frozen. */
export interface PolicyDescription {
  readonly policy: PolicyName;
  /** How the key was written, a literal one in quotes; `'perTask'` for one bucket per task. */
  readonly key: string;
  /** What the store key begins with. */
  readonly keyBase: string;
  /** The options in effect: written, inherited, module defaults, our defaults. */
  readonly options: Readonly<Record<string, unknown>>;
}

/** Which rows are locked around the body, and how. Frozen. */
export interface RowLockDescription {
  /** As it was written: a table, an entity or a model. */
  readonly target: RowTarget;
  /** How the key was written, a literal one in quotes. */
  readonly key: string;
  /** The options in effect. */
  readonly options: Readonly<Record<string, unknown>>;
}

/** What guards a method. Frozen. */
export interface MethodDescription {
  /** `ClassName.methodName`. */
  readonly task: string;
  /** In the order of the envelope. */
  readonly policies: readonly PolicyDescription[];
  /** How the body is repeated, if it is. */
  readonly retry?: Readonly<Record<string, unknown>>;
  /** Which rows are locked, if any are. */
  readonly rowLock?: RowLockDescription;
  /** Whether arguments and return values are checked by schemas. */
  readonly checksInput: boolean;
  readonly checksOutput: boolean;
  /** Which policies share a trip to the store. A limiter function and an asynchronous key stand alone. */
  readonly batches: readonly (readonly PolicyName[])[];
}

export function describePlan(plan: CompiledPlan): MethodDescription {
  return Object.freeze({
    task: plan.task,
    policies: Object.freeze(
      plan.rings.map((ring) =>
        Object.freeze({
          policy: ring.policy.policy,
          key: ring.keyText,
          keyBase: ring.keyBase,
          options: ring.options,
        }),
      ),
    ),
    ...(plan.retry && { retry: plan.retry.options as Readonly<Record<string, unknown>> }),
    ...(plan.rowLock && { rowLock: describeRowLock(plan.rowLock) }),
    checksInput: plan.inputs !== undefined,
    checksOutput: plan.output !== undefined,
    batches: Object.freeze(batchesOf(plan).map((batch) => Object.freeze(batch))),
  });
}

function describeRowLock({ target, key, options }: CompiledRowLock): RowLockDescription {
  return Object.freeze({
    target,
    key: key.text,
    options: options as Readonly<Record<string, unknown>>,
  });
}

function batchesOf(plan: CompiledPlan): PolicyName[][] {
  const batches: PolicyName[][] = [];
  let open: PolicyName[] | undefined;
  for (const { policy, async } of plan.rings) {
    if (!open || async || policy.own) batches.push((open = []));
    open.push(policy.policy);
    if (policy.own) open = undefined;
  }
  return batches;
}
