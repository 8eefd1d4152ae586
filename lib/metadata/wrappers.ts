import type { WrapperRecord } from '../envelope/wrapper-record.js';
import { once } from '../process-wide.js';
import type { AnyClass } from './method-name.js';

interface WrapperBook {
  readonly byFunction: WeakMap<object, WrapperRecord>;
  readonly byPrototype: WeakMap<object, Map<PropertyKey, WrapperRecord>>;
}

/** One book per process: a wrapper made by the ESM copy is known to the CJS copy. */
const book = once<WrapperBook>('wrappers', () => ({
  byFunction: new WeakMap(),
  byPrototype: new WeakMap(),
}));

export function recordWrapper(record: WrapperRecord): void {
  book.byFunction.set(record.wrapper, record);
  const ofPrototype = book.byPrototype.get(record.home) ?? new Map();
  book.byPrototype.set(record.home, ofPrototype.set(record.method, record));
}

/** The record of a function that is one of our wrappers. */
export function wrapperOf(fn: unknown): WrapperRecord | undefined {
  return typeof fn === 'function' ? book.byFunction.get(fn) : undefined;
}

/** Whether a decorator has already wrapped this very method of this very prototype. */
export function hasWrapper(home: object, method: PropertyKey): boolean {
  return book.byPrototype.get(home)?.has(method) === true;
}

/**
 * The wrapper that a call from outside meets first.
 *
 * @returns `undefined` when the method found on the prototype chain is not one of ours
 */
export function outermostWrapper(target: AnyClass, method: PropertyKey): WrapperRecord | undefined {
  for (
    let prototype: object | null = target.prototype;
    prototype !== null;
    prototype = Object.getPrototypeOf(prototype)
  ) {
    const descriptor = Object.getOwnPropertyDescriptor(prototype, method);
    if (descriptor) return wrapperOf(descriptor.value);
  }
  return undefined;
}

/** A wrapper further down the chain, of a more derived class or hoisted over another, ranks higher. */
export function rankOf(home: object, hoisted: boolean): number {
  let depth = 0;
  for (let each: object | null = home; each !== null; each = Object.getPrototypeOf(each))
    depth += 1;
  return depth * 2 + (hoisted ? 1 : 0);
}
