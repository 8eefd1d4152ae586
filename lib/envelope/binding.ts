import { once } from '../process-wide.js';
import type { WrapperRecord } from './wrapper-record.js';

/** What a wrapper needs of the application its instance belongs to. */
export interface Invoker {
  /** Runs a call of a guarded method through its envelope. */
  invoke(record: WrapperRecord, instance: object, args: unknown[]): unknown;
}

/**
 * The token under which Nest injects the runtime into every decorated class. Its description is
 * what Nest prints when the module is missing, so it reads as the cure.
 */
export const CMDX_RUNTIME: unique symbol = Symbol.for('CmdxModule.forRoot()') as never;

const INVOKER: unique symbol = Symbol.for('cmdx:invoker') as never;
const BYPASS: unique symbol = Symbol.for('cmdx:bypass') as never;

/** Instances that could not take a property: they froze themselves in their constructor. */
const frozen = once('frozen', () => new WeakMap<object, Invoker>());

/** Whether {@link withoutPolicies} was asked for this very instance. */
export function isBare(instance: object): boolean {
  return ((instance as { [INVOKER]?: Invoker })[INVOKER] ?? frozen.get(instance)) === bare;
}

/** Runs the bare method, whatever its policies. */
const bare = once<Invoker>('bare', () => ({
  invoke: (record, instance, args) => record.original.apply(instance, args),
}));

/** Gives an instance its application's runtime, out of sight: not enumerable, not in a spread. */
export function bind(instance: object, invoker: Invoker): void {
  if (Object.isExtensible(instance)) {
    Object.defineProperty(instance, INVOKER, { value: invoker, configurable: true });
  } else {
    frozen.set(instance, invoker);
  }
}

/** The runtime of the application that made the instance, `undefined` for an unmanaged one. */
export function invokerOf(instance: unknown): Invoker | undefined {
  if (instance === null || instance === undefined) return undefined;
  const found = (instance as { [INVOKER]?: Invoker })[INVOKER];
  if (found) return found;
  return frozen.get(instance as object) ?? (bypassed() ? bare : undefined);
}

/**
 * Lets the decorated methods of this one instance run bare: for unit tests that build it by hand.
 *
 * @returns the same instance
 */
export function withoutPolicies<T extends object>(instance: T): T {
  bind(instance, bare);
  return instance;
}

/** Lets unmanaged instances run bare in this process, see `nestjs-cmdx/testing/bypass`. */
export function bypassUnmanaged(): void {
  (globalThis as { [BYPASS]?: boolean })[BYPASS] = true;
}

function bypassed(): boolean {
  return (globalThis as { [BYPASS]?: boolean })[BYPASS] === true;
}
