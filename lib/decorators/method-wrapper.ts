import { Inject } from '@nestjs/common';
import { throwError } from 'rxjs';
import { bind, CMDX_RUNTIME, type Invoker, invokerOf } from '../envelope/binding.js';
import type { WrapperRecord } from '../envelope/wrapper-record.js';
import { DefinitionError, NotManagedError, show } from '../errors/definition.error.js';
import { declarationOf } from '../metadata/declaration.js';
import { type AnyClass, nameOf, taskName } from '../metadata/method-name.js';
import { isNestHandler, methodNames } from '../metadata/nest-metadata.js';
import { hasWrapper, outermostWrapper, rankOf, recordWrapper } from '../metadata/wrappers.js';
import { isStream } from '../plan/inheritance.js';

/** Lets Nest hand the runtime of its own application to every instance, unseen. */
interface RuntimeSlot extends Invoker {
  /** Called with each instance that Nest makes, before anything calls its methods. */
  adopt(instance: object): void;
}

/**
 * Wraps a decorated method, once, however many of our decorators are stacked on it.
 *
 * @throws DefinitionError when what is decorated is no method of instances
 */
export function guardMethod(
  target: object,
  method: PropertyKey,
  descriptor: PropertyDescriptor | undefined,
  decorator: string,
): PropertyDescriptor {
  const owner =
    typeof target === 'function' ? (target as AnyClass) : (target.constructor as AnyClass);
  const site = `${taskName(owner, method)}: ${decorator}`;
  if (typeof target === 'function') {
    const got = descriptor ? 'a static method' : 'a static property';
    throw new DefinitionError(`${site}: expected a method of instances, got ${got}`);
  }
  if (typeof descriptor?.value !== 'function') {
    throw new DefinitionError(`${site}: expected a method, got ${kindOf(descriptor)}`);
  }
  injectRuntime(target);
  if (hasWrapper(target, method)) return descriptor;
  return { ...descriptor, value: makeWrapper(target, method, descriptor.value, false).wrapper };
}

/** What a decorator stands on that is no method, told by its third argument. */
function kindOf(descriptor: unknown): string {
  if (typeof descriptor === 'number') return 'a parameter';
  return descriptor ? 'an accessor' : 'a property';
}

/** Wraps every Nest handler of a decorated class, its inherited ones included. */
export function guardHandlers(target: AnyClass): void {
  injectRuntime(target.prototype as object);
  for (const method of methodNames(target)) {
    if (isNestHandler(target, method)) ensureWrapped(target, method);
  }
}

/**
 * Makes sure that a call of the method meets a wrapper of ours first: one is put on the class's own
 * prototype where the method found on its chain is none of ours.
 *
 * @throws DefinitionError when the method is hidden behind an accessor of somebody else
 */
export function ensureWrapped(target: AnyClass, method: PropertyKey): void {
  const home = target.prototype as object;
  if (outermostWrapper(target, method)) return;
  const found = findDescriptor(home, method);
  if (!found) return;
  if (typeof found.value !== 'function') {
    throw new DefinitionError(
      `${taskName(target, method)}: expected a method, got an accessor; a decorator that replaces the method by an accessor (autobind) must stand below ours`,
    );
  }
  const { wrapper } = makeWrapper(home, method, found.value, hasWrapper(home, method));
  Object.defineProperty(home, method, { ...found, value: wrapper });
}

function makeWrapper(
  home: object,
  method: PropertyKey,
  original: (...args: unknown[]) => unknown,
  hoisted: boolean,
): WrapperRecord {
  const wrapper = function (this: unknown, ...args: unknown[]): unknown {
    const invoker = invokerOf(this);
    return invoker === undefined
      ? refuseUnmanaged(record, this)
      : invoker.invoke(record, this as object, args);
  };
  Object.defineProperty(wrapper, 'name', { value: original.name, configurable: true });
  Object.defineProperty(wrapper, 'length', { value: original.length, configurable: true });
  // Reflect metadata is found through the prototype: what was written on the original below us is
  // seen on the wrapper, and what is written above us lands on the wrapper itself.
  Object.setPrototypeOf(wrapper, original);
  const record: WrapperRecord = {
    home,
    method,
    rank: rankOf(home, hoisted),
    wrapper,
    original,
  };
  recordWrapper(record);
  return record;
}

function refuseUnmanaged({ home, method }: WrapperRecord, instance: unknown): unknown {
  const base = home.constructor as AnyClass;
  const owner = instance instanceof base ? (instance.constructor as AnyClass) : base;
  const error = new NotManagedError(taskName(owner, method));
  return isStream(declarationOf(owner, method, () => undefined))
    ? throwError(() => error)
    : Promise.reject(error);
}

/**
 * Asks Nest for the runtime by property injection, on an accessor that keeps it out of sight. Every
 * instance gets the runtime of its own application, in every scope.
 */
function injectRuntime(prototype: object): void {
  if (CMDX_RUNTIME in prototype) return;
  Object.defineProperty(prototype, CMDX_RUNTIME, {
    configurable: true,
    get(this: object) {
      return invokerOf(this);
    },
    set(this: object, runtime: RuntimeSlot) {
      bind(this, runtime);
      runtime.adopt(this);
    },
  });
  Inject(CMDX_RUNTIME)(prototype, CMDX_RUNTIME);
}

function findDescriptor(prototype: object, method: PropertyKey): PropertyDescriptor | undefined {
  for (let each: object | null = prototype; each !== null; each = Object.getPrototypeOf(each)) {
    const descriptor = Object.getOwnPropertyDescriptor(each, method);
    if (descriptor) return descriptor;
  }
  return undefined;
}

/** Refuses the decorators of the ECMAScript proposal, which have no parameter types and no metadata. */
export function assertLegacyDecorator(second: unknown, decorator: string): void {
  if (typeof second === 'object' && second !== null && 'kind' in second) {
    throw new DefinitionError(
      `${decorator}: expected TypeScript's experimentalDecorators, as Nest needs them, got ${show(second)} on ${nameOf((second as { name?: PropertyKey }).name ?? '?')}`,
    );
  }
}
