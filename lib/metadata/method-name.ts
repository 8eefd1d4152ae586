/** A class, concrete or abstract. */
export type AnyClass = abstract new (...args: never[]) => object;

/** How a class and its method are written in messages and store keys: `ClassName.methodName`. */
export function taskName(target: AnyClass, method: PropertyKey): string {
  return `${target.name}.${nameOf(method)}`;
}

export function nameOf(method: PropertyKey): string {
  return typeof method === 'symbol' ? (method.description ?? 'symbol') : String(method);
}

/** The class and its bases, from the base to the leaf. */
export function lineage(target: AnyClass): readonly AnyClass[] {
  const chain: AnyClass[] = [];
  for (
    let current: AnyClass | null = target;
    typeof current === 'function' && current.prototype !== undefined;
    current = Object.getPrototypeOf(current)
  ) {
    chain.unshift(current);
  }
  return chain;
}

/** The function found under `method` on the prototype chain of the class, without running getters. */
export function findMethod(target: AnyClass, method: PropertyKey): PropertyDescriptor | undefined {
  for (
    let prototype: object | null = target.prototype;
    prototype !== null;
    prototype = Object.getPrototypeOf(prototype)
  ) {
    const descriptor = Object.getOwnPropertyDescriptor(prototype, method);
    if (descriptor) return descriptor;
  }
  return undefined;
}
