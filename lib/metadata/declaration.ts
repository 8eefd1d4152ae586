import { DECLARABLES, type Declarable } from '../policies/option-rules.js';
import type { MethodDeclaration, PolicyRecord } from '../plan/declaration.js';
import { type AnyClass, findMethod, lineage, taskName } from './method-name.js';
import { shapeOf } from './method-shape.js';
import {
  answersByItself,
  fixedAnswer,
  isNestHandler,
  methodNames,
  returnsObservable,
  streamsEvents,
} from './nest-metadata.js';
import {
  classPolicies,
  decoratedMethods,
  jittersOf,
  limitersOf,
  lockedRowOf,
  policyRecordsOf,
} from './policy-records.js';
import { outermostWrapper } from './wrappers.js';

/** Everything that was written about a method, on the class and on its bases. */
export function declarationOf(
  target: AnyClass,
  method: PropertyKey,
  warnOnce: (message: string) => void,
): MethodDeclaration {
  const handler = isNestHandler(target, method);
  return {
    className: target.name,
    method,
    task: taskName(target, method),
    rank: outermostWrapper(target, method)?.rank ?? 0,
    shape: shapeOf(target, method, warnOnce),
    records: Object.fromEntries(
      DECLARABLES.map((policy) => [policy, recordsFor(target, method, policy, handler)]),
    ),
    limiters: limitersOf(target),
    jitters: jittersOf(target),
    lockedRowAt: lockedRowOf(target, method),
    returnsObservable: returnsObservable(target.prototype as object, method),
    handler,
    streamsEvents: handler && streamsEvents(target, method),
    answersByItself: handler && answersByItself(target, method),
    fixedAnswer: handler ? fixedAnswer(target, method) : undefined,
    methodNamed(name) {
      const found: unknown = findMethod(target, name)?.value;
      return typeof found === 'function' ? (found as () => unknown) : undefined;
    },
  };
}

/** Methods that a decorator of ours reaches: decorated themselves, or handlers of a decorated class. */
export function guardedMethods(target: AnyClass): ReadonlySet<PropertyKey> {
  const guarded = new Set(decoratedMethods(target));
  if (classPolicies(target).size > 0) {
    for (const method of methodNames(target)) {
      if (isNestHandler(target, method)) guarded.add(method);
    }
  }
  return guarded;
}

/** Policies whose class decorator, own or inherited, reaches no method of the class. */
export function idleClassPolicies(target: AnyClass): readonly Declarable[] {
  const methods = [...guardedMethods(target)];
  return [...classPolicies(target)].filter(
    (policy) =>
      !methods.some(
        (method) => recordsFor(target, method, policy, isNestHandler(target, method)).length > 0,
      ),
  );
}

/**
 * The decorators of one policy that apply to a method, from the base class to the leaf, within one
 * class first the class's, then the method's. A class decorator reaches handlers, and methods that
 * carry the same decorator themselves.
 */
function recordsFor(
  target: AnyClass,
  method: PropertyKey,
  policy: Declarable,
  handler: boolean,
): readonly PolicyRecord[] {
  const written = lineage(target).map((each) => policyRecordsOf(each, method, policy));
  const reached = handler || written.some((each) => each.method.length > 0);
  return reached ? written.flatMap((each) => [...each.class, ...each.method]) : [];
}
