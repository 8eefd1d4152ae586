import { brand, hasBrand } from '../errors/brand.js';
import type { Invocation } from '../invocation.js';

/** What a key may be. Blank (`null`, `undefined`, `''`) means: this policy steps aside. */
export type KeyValue = string | number | bigint | null | undefined;

/** An object, or an injectable class, that answers the key of an invocation. */
export interface KeyResolver {
  call(invocation: Invocation): KeyValue | Promise<KeyValue>;
}

/** A class that Nest provides and that implements {@link KeyResolver}. */
export type KeyResolverClass = abstract new (...args: never[]) => KeyResolver;

/** A function of the guarded method's arguments; `this` is the instance. */
export type KeyFunction<A extends readonly unknown[] = readonly never[]> = (
  ...args: A
) => KeyValue | Promise<KeyValue>;

const PER_TASK: unique symbol = Symbol.for('cmdx:per-task') as never;

/** The type of {@link perTask}. */
export interface PerTask {
  readonly [PER_TASK]: true;
}

/** One bucket for the whole task: the store key ends with the task's name. */
export const perTask: PerTask = Object.freeze({ [PER_TASK]: true as const });

/** Every function has a `call`, which makes none of them a resolver. */
export interface NoFunction {
  readonly apply?: never;
}

/** Every form a key may be written in, a function apart. */
export type StaticKey = string | PerTask | (KeyResolver & NoFunction) | KeyResolverClass;

/** A key as it was written, whatever its form. */
export type KeySpec = StaticKey | KeyFunction;

/**
 * How much of a key a client writes into headers of its own choice; fixed texts do not count. With
 * `'all'` two clients that choose alike share the key.
 */
export type HeaderShare = 'none' | 'some' | 'all';

/** A resolver of ours, which wants to know the method it is written on before the first call. */
export interface BindableResolver extends KeyResolver {
  readonly [BINDABLE]: true;
  /** Whether the value comes from the request, so that a wrong one is the client's fault. */
  readonly fromRequest: boolean;
  /** Whether `call` is known to return a promise: then it is not called before the outer rings let pass. */
  readonly async: boolean;
  readonly headers: HeaderShare;
  /** @throws DefinitionError when the method can never supply the key */
  bind(shape: MethodShape): BindableResolver;
  /** How the key was written, for messages. */
  toString(): string;
}

export const BINDABLE: unique symbol = Symbol.for('cmdx:bindable') as never;

/** What is known of a method's parameters before it is called. */
export interface MethodShape {
  /** `ClassName.methodName`. */
  readonly task: string;
  /** Explicit names (`@Param('x')`, `@Query('x')`, `@Body('x')`, `@Headers('x')`, `@Named('x')`) and their positions. */
  readonly names: ReadonlyMap<string, readonly number[]>;
  /** Positions of the request, the response, `next` and the locked row: never searched for an input. */
  readonly unsearchable: ReadonlySet<number>;
  /** Positions of `@Headers('x')` and `@Headers()`. */
  readonly headers: ReadonlySet<number>;
  /** The emitted types of the parameters that may be inputs, `undefined` when the toolchain emits none. */
  readonly types: readonly unknown[] | undefined;
  /** Says a thing once in the application's life. */
  warnOnce(message: string): void;
}

/** A key could not be made of what the invocation supplied. The envelope words it as `InvalidKeyError`. */
export class KeyProblem extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'KeyProblem';
    brand(this, 'key_problem');
  }
}

export function isKeyProblem(error: unknown): error is KeyProblem {
  return hasBrand(error, 'key_problem');
}

export function isPerTask(value: unknown): value is PerTask {
  return typeof value === 'object' && value !== null && PER_TASK in value;
}

export function isBindable(value: unknown): value is BindableResolver {
  return typeof value === 'object' && value !== null && BINDABLE in value;
}

export function isKeyResolverClass(value: unknown): value is KeyResolverClass {
  return (
    typeof value === 'function' &&
    typeof (value.prototype as Partial<KeyResolver> | undefined)?.call === 'function'
  );
}

export function isKeyResolver(value: unknown): value is KeyResolver {
  return (
    typeof value === 'object' &&
    value !== null &&
    typeof (value as Partial<KeyResolver>).call === 'function'
  );
}

/** Whether `value` is written in one of the forms of a key. */
export function isKeySpec(value: unknown): value is KeySpec {
  return (
    typeof value === 'string' ||
    typeof value === 'function' ||
    isPerTask(value) ||
    isKeyResolver(value)
  );
}
