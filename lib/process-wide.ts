import { AsyncResource } from 'node:async_hooks';

const REGISTRY = Symbol.for('cmdx:process');

/**
 * Makes a thing once per process. What has identity (tokens that are classes, the async context,
 * the record of our wrappers) must be the same object for an ESM and a CJS copy of the package.
 */
export function once<T>(name: string, make: () => T): T {
  const scope = globalThis as { [REGISTRY]?: Map<string, unknown> };
  const registry = (scope[REGISTRY] ??= new Map());
  if (!registry.has(name)) registry.set(name, make());
  return registry.get(name) as T;
}

const root = once('root', () => new AsyncResource('Cmdx'));

/**
 * Runs `fn` outside every async context. For what outlives the invocation that happens to start it
 * (connections, timers, background work): it must not keep that invocation's request alive.
 */
export function outside<T>(fn: () => T): T {
  return root.runInAsyncScope(fn);
}
