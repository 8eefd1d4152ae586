import { settledNow } from '../awaitable.js';

/** Whether an error is one of those meant. */
export type ErrorMatcher = (error: unknown) => boolean;

/** A class of errors, or of anything that is thrown. */
export type ErrorClass = abstract new (...args: never[]) => unknown;

/** How errors are named in options: a class, a predicate, or a list of both. */
export type ErrorSelection =
  | ErrorClass
  | ((error: unknown) => boolean)
  | readonly (ErrorClass | ((error: unknown) => boolean))[];

export function matcherOf(selections: readonly ErrorSelection[]): ErrorMatcher {
  const matchers = selections.flat().map(matcher);
  return (error) => matchers.some((matches) => matches(error));
}

/** A predicate that throws does so for who asks; one that answers a promise matches nothing. */
function matcher(selection: ErrorClass | ((error: unknown) => boolean)): ErrorMatcher {
  if (isErrorClass(selection)) return (error) => error instanceof selection;
  const predicate = selection as (error: unknown) => boolean;
  return (error) => settledNow(predicate(error)) === true;
}

/**
 * A class statement, or a constructor whose prototype is an error's: the prototype of a predicate that
 * is written with `function` is a plain object, and one that is written with `=>` has none.
 */
function isErrorClass(value: unknown): value is ErrorClass {
  if (typeof value !== 'function') return false;
  const { prototype } = value as { prototype?: unknown };
  if (typeof prototype !== 'object' || prototype === null) return false;
  return (
    prototype instanceof Error ||
    /^class\b/.test(Function.prototype.toString.call(value)) ||
    value === Error
  );
}

/** Whether it is written in a form that {@link matcherOf} reads. */
export function isErrorSelection(value: unknown): value is ErrorSelection {
  const list: readonly unknown[] = Array.isArray(value) ? value : [value];
  return list.length > 0 && list.every((each) => typeof each === 'function');
}
