import { types } from 'node:util';
import type { Invocation } from '../invocation.js';
import {
  type HeaderShare,
  isBindable,
  isKeyResolverClass,
  isPerTask,
  type KeyFunction,
  type KeyResolver,
  type KeyResolverClass,
  type KeySpec,
  type MethodShape,
} from './key-resolver.js';

/** A key as the envelope uses it: one function of the invocation, whatever form it was written in. */
export interface CompiledKey {
  /** The raw value, or a promise of it. */
  readonly read: (invocation: Invocation) => unknown;
  /** Whether `read` is known to return a promise. */
  readonly async: boolean;
  /** Whether a wrong value is the client's fault. */
  readonly fromRequest: boolean;
  readonly headers: HeaderShare;
  /** How the key was written, for `describePolicies`. */
  readonly text: string;
}

/** What the application's own code answers is the application's own decision. */
const APPLICATION = { fromRequest: false, headers: 'none' } as const;

/** Finds the instances of injectable resolvers. */
export interface ResolverLookup {
  /** Notes that a task needs one, so that a missing provider is found at boot. */
  expect(resolver: KeyResolverClass, task: string): void;
  /** The instance, once the application has made it. */
  get(resolver: KeyResolverClass): KeyResolver;
}

/**
 * @returns `undefined` for a key that is the task itself (no key, or `perTask`)
 * @throws DefinitionError when the method can never supply the key
 */
export function compileKey(
  spec: KeySpec | undefined,
  shape: MethodShape,
  lookup: ResolverLookup,
): CompiledKey | undefined {
  if (spec === undefined || isPerTask(spec)) return undefined;
  if (typeof spec === 'string') {
    return { ...APPLICATION, read: () => spec, async: false, text: JSON.stringify(spec) };
  }
  if (isBindable(spec)) {
    const bound = spec.bind(shape);
    return {
      read: (invocation) => bound.call(invocation),
      async: bound.async,
      fromRequest: bound.fromRequest,
      headers: bound.headers,
      text: String(bound),
    };
  }
  if (isKeyResolverClass(spec)) {
    lookup.expect(spec, shape.task);
    return compileClass(spec, lookup);
  }
  if (typeof spec === 'function') {
    const fn = spec as unknown as KeyFunction<unknown[]>;
    return {
      ...APPLICATION,
      read: (invocation) => fn.apply(invocation.instance, [...invocation.args]),
      async: types.isAsyncFunction(fn),
      text: 'a key function',
    };
  }
  return {
    ...APPLICATION,
    read: (invocation) => spec.call(invocation),
    async: types.isAsyncFunction(spec.call),
    text: 'a key resolver',
  };
}

function compileClass(resolver: KeyResolverClass, lookup: ResolverLookup): CompiledKey {
  let instance: KeyResolver | undefined;
  return {
    ...APPLICATION,
    read: (invocation) => (instance ??= lookup.get(resolver)).call(invocation),
    async: types.isAsyncFunction(resolver.prototype.call),
    text: resolver.name,
  };
}
