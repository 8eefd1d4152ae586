import type { Observable } from 'rxjs';
import type { AnyClass } from '../metadata/method-name.js';

/** What a guarded method may return. */
export type GuardedAnswer = Promise<unknown> | Observable<unknown>;

/** A method that a policy may guard. */
export type GuardedMethod = (...args: never[]) => GuardedAnswer;

/**
 * A method that a key function of the arguments `A` fits. Written as a method shorthand, so that
 * parameters are compared both ways: a key may ask for less than the method's parameter offers, and
 * generic methods are accepted.
 */
type MethodOf<A extends readonly unknown[]> = {
  method(...args: [...A, ...never[]]): unknown;
}['method'];

type AnyValues<A extends readonly unknown[]> = { [I in keyof A]: unknown };

/** Whether the method has at least the parameters that the key function asks for. */
type HasParameters<
  M extends GuardedMethod,
  A extends readonly unknown[],
> = number extends Parameters<M>['length']
  ? true
  : Required<Parameters<M>> extends readonly [...AnyValues<A>, ...unknown[]]
    ? true
    : false;

type Value<R> = R extends Promise<infer V> ? V : R extends Observable<infer V> ? V : R;

type Fault<Message extends string> = { readonly __fault: Message };

/** `unknown` when the decorator fits the method, otherwise a type whose message says why not. */
type Fit<M extends GuardedMethod, A extends readonly unknown[], CanSkip extends boolean> =
  M extends MethodOf<A>
    ? HasParameters<M, A> extends true
      ? CanSkip extends true
        ? undefined extends Value<ReturnType<M>>
          ? unknown
          : Fault<"'skip' lets the call return undefined: add undefined to the method's return type">
        : unknown
      : Fault<'the key function asks for more parameters than the method has'>
    : Fault<'the key function does not accept the parameters of the method'>;

/**
 * A policy decorator, for a method or for a class.
 *
 * @typeParam A the arguments that the key function takes
 * @typeParam CanSkip whether a refusal lets the call return `undefined`
 */
export interface PolicyDecorator<
  A extends readonly unknown[] = readonly [],
  CanSkip extends boolean = false,
> {
  /** On a class: guards its Nest handlers, and is the default for methods with the same decorator. */
  <C extends AnyClass>(target: C): void;
  /** On a method that returns a Promise or an Observable. */
  <M extends GuardedMethod>(
    target: object,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M> & Fit<M, A, CanSkip>,
  ): void;
}

/** Whether the options, as literally written, let a refusal skip. */
export type Skips<O, Name extends string> = O extends { readonly [N in Name]: infer V }
  ? [V] extends ['skip']
    ? true
    : false
  : false;
