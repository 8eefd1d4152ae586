/** A value now or later. A store in this process answers now: no promise, no timer. */
export type Awaitable<T> = T | Promise<T>;

/** Whether a value has to be waited for. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return (
    typeof value === 'object' &&
    value !== null &&
    typeof (value as { then?: unknown }).then === 'function'
  );
}

/** Goes on with a value: at once when it is here, later when it is a promise. */
export function andThen<T, R>(value: Awaitable<T>, next: (value: T) => Awaitable<R>): Awaitable<R> {
  return value instanceof Promise ? value.then(next) : next(value);
}

/**
 * What was answered where only an answer at once is of use. Nobody waits for a promise instead of
 * one; should it be rejected, that must be no crash.
 */
export function settledNow(answer: unknown): unknown {
  if (isThenable(answer)) Promise.resolve(answer).catch(() => undefined);
  return answer;
}

/** Asks all in turn, and goes on with their answers: at once when none of them is a promise. */
export function askAll<R>(
  asks: readonly (() => unknown)[],
  next: (answers: readonly unknown[]) => R,
): Awaitable<R> {
  const answers: unknown[] = [];
  try {
    for (const ask of asks) answers.push(ask());
  } catch (error) {
    // Nobody waits any more for what was asked before.
    answers.forEach(settledNow);
    throw error;
  }
  return answers.some(isThenable) ? Promise.all(answers).then(next) : next(answers);
}
