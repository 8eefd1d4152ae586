import type { StandardSchemaV1 } from '@standard-schema/spec';
import type { Schema } from '../policies/schema.js';
import type { GuardedMethod } from './guarded-method.js';
import { policyDecorator } from './policy-decorator.js';

/** What the parameters of a method get from a list of schemas. */
type Parsed<S extends readonly (Schema | undefined)[]> = {
  [I in keyof S]: S[I] extends Schema ? StandardSchemaV1.InferOutput<S[I]> : never;
};

/**
 * A decorator for a method whose first parameters take these values. Unlike a key, which may ask for
 * less, a schema has to make all that the parameter asks for.
 */
type TakesDecorator<A extends readonly unknown[]> = <M extends GuardedMethod>(
  target: object,
  method: string | symbol,
  descriptor: TypedPropertyDescriptor<M> &
    (M extends (...args: [...A, ...never[]]) => unknown
      ? unknown
      : { readonly __fault: 'the parameters do not take what the schema makes' }),
) => void;

type GivesDecorator<S extends Schema> = <
  M extends (...args: never[]) => Promise<StandardSchemaV1.InferInput<S>>,
>(
  target: object,
  method: string | symbol,
  descriptor: TypedPropertyDescriptor<M>,
) => void;

/**
 * Checks arguments before anything else: what the schemas make of them is what key resolvers, gates
 * and the body see, and an invalid one charges no quota, takes no lease and claims no key. For
 * methods that have no pipes; a handler's pipes run before.
 *
 * Forms: `(schema)` for the first argument, `([first, undefined, third])` one for each, `()` inherits,
 * `(false)` turns it off.
 *
 * @param schema of any library that implements Standard Schema: zod, valibot, arktype and others
 * @returns a decorator for a method that returns a Promise or an Observable; its calls throw
 *   `InputInvalidError` (400) with all issues
 * @throws DefinitionError for anything that is no schema, or on a class
 * @see https://standardschema.dev
 */
export function InputSchema(off?: false): TakesDecorator<readonly []>;
export function InputSchema<S extends Schema>(
  schema: S,
): TakesDecorator<readonly [StandardSchemaV1.InferOutput<S>]>;
export function InputSchema<const S extends readonly (Schema | undefined)[]>(
  schemas: S,
): TakesDecorator<Parsed<S> extends readonly unknown[] ? Parsed<S> : never>;
export function InputSchema(...written: unknown[]): TakesDecorator<readonly []> {
  return policyDecorator('inputSchema', written as []) as TakesDecorator<readonly []>;
}

/**
 * Checks what the method returns: the caller gets what the schema makes of it. A value that does not
 * fit throws `OutputInvalidError` (500); the work is done all the same, so an idempotency key stays
 * used and the breaker counts nothing.
 *
 * Forms: `(schema)`, `()` inherits, `(false)` turns it off.
 *
 * @param schema of any library that implements Standard Schema
 * @returns a decorator for a method that returns a Promise
 * @throws DefinitionError for anything that is no schema, or on a class; at boot on an Observable
 */
export function OutputSchema(off?: false): GivesDecorator<Schema>;
export function OutputSchema<S extends Schema>(schema: S): GivesDecorator<S>;
export function OutputSchema(...written: unknown[]): GivesDecorator<Schema> {
  return policyDecorator('outputSchema', written as []) as GivesDecorator<Schema>;
}
