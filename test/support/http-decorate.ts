/** A method decorator, applied by hand so that its position can be generated. */
export type MethodDecoration = (
  target: object,
  method: string,
  descriptor: PropertyDescriptor,
) => PropertyDescriptor | void;

/** Applies decorators as if they were written above a method, the first one at the top. */
export function decorateMethod(
  prototype: object,
  method: string,
  topToBottom: readonly unknown[],
): void {
  let descriptor = Object.getOwnPropertyDescriptor(prototype, method) as PropertyDescriptor;
  for (const decoration of topToBottom.toReversed()) {
    const replaced = (decoration as MethodDecoration)(prototype, method, descriptor);
    descriptor = replaced ?? descriptor;
  }
  Object.defineProperty(prototype, method, descriptor);
}

/** Every order of the items. */
export function permutations<T>(items: readonly T[]): T[][] {
  if (items.length <= 1) return [[...items]];
  return items.flatMap((first, position) =>
    permutations(items.toSpliced(position, 1)).map((rest) => [first, ...rest]),
  );
}

/** The items with `added` at every possible position. */
export function insertions<T>(items: readonly T[], added: T): T[][] {
  return [...items, added].map((_, position) => items.toSpliced(position, 0, added));
}

/** Gives a class that was made in a loop a name of its own, as a written class has one. */
export function named<C extends object>(name: string, target: C): C {
  Object.defineProperty(target, 'name', { value: name });
  return target;
}
