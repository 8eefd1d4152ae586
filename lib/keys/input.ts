import { IncomingMessage, ServerResponse } from 'node:http';
import { DefinitionError, show } from '../errors/definition.error.js';
import type { Invocation } from '../invocation.js';
import {
  BINDABLE,
  type BindableResolver,
  type HeaderShare,
  KeyProblem,
  type KeyValue,
  type MethodShape,
} from './key-resolver.js';
import { unquoted } from './quoted.js';

/**
 * The input of that name: the parameter that carries it explicitly (`@Param('x')`, `@Query('x')`,
 * `@Body('x')`, `@Headers('x')`, `@Named('x')`), or else the own property of the one object
 * argument that has it. Two arguments that have it are ambiguous and refused, so that a field that
 * a client adds to a body can never choose the key.
 *
 * @param name a name, or a path of own properties: `'order.id'`
 * @throws DefinitionError at boot, when the method can never have such an input
 */
export function input(name: string): BindableResolver {
  if (typeof name !== 'string' || name === '') {
    throw new DefinitionError(`input(): expected the name of an input, got ${show(name)}`);
  }
  return new InputKey(name);
}

/**
 * The argument at a position, or an own property of it.
 *
 * @param index counted from 0
 * @param path a path of own properties, for example `'email'` or `'order.id'`
 */
export function arg(index: number, path?: string): BindableResolver {
  if (!Number.isSafeInteger(index) || index < 0) {
    throw new DefinitionError(`arg(): expected a position from 0, got ${show(index)}`);
  }
  if (path !== undefined && (typeof path !== 'string' || path === '')) {
    throw new DefinitionError(`arg(): expected a property path, got ${show(path)}`);
  }
  return new ArgumentKey(index, path);
}

class ArgumentKey implements BindableResolver {
  readonly [BINDABLE] = true;
  readonly fromRequest = false;
  readonly async = false;
  readonly headers: HeaderShare;
  readonly #path: readonly string[];

  constructor(
    private readonly index: number,
    private readonly path: string | undefined,
    private readonly shape?: MethodShape,
  ) {
    this.#path = path?.split('.') ?? [];
    this.headers = shape?.headers.has(index) ? 'all' : 'none';
  }

  bind(shape: MethodShape): BindableResolver {
    return new ArgumentKey(this.index, this.path, shape);
  }

  call(invocation: Invocation): KeyValue {
    const value = follow(invocation.args[this.index], this.#path);
    if (value === undefined && this.path !== undefined) tellAbsent(this, this.shape);
    return (this.headers === 'all' ? unquoted(value) : value) as KeyValue;
  }

  toString(): string {
    return this.path === undefined ? `arg(${this.index})` : `arg(${this.index}, '${this.path}')`;
  }
}

class InputKey implements BindableResolver {
  readonly [BINDABLE] = true;
  readonly fromRequest = false;
  readonly async = false;
  readonly headers: HeaderShare;
  readonly #path: readonly string[];

  constructor(
    private readonly name: string,
    private readonly shape?: MethodShape,
  ) {
    this.#path = name.split('.');
    this.headers = shape && isHeader(name, shape) ? 'all' : 'none';
  }

  bind(shape: MethodShape): BindableResolver {
    const named = positionsOf(this.name, shape);
    if (named.length > 1) {
      throw new DefinitionError(
        `${shape.task}: ${this} is ambiguous: the parameters ${named.join(' and ')} are both named so`,
      );
    }
    if (named.length === 0 && shape.types?.every(isPrimitiveType)) {
      const names = [...shape.names.keys()];
      const known =
        names.length > 0 ? `the names there are: ${names.join(', ')}` : 'no parameter has a name';
      throw new DefinitionError(
        `${shape.task}: ${this} can never have a value: no parameter is named so, and none can carry the property (${known}). ` +
          `Name one with @Named('${this.#path[0]}') or use arg(position); where a class decorator reaches a method it does not fit, write the decorator with (false) there`,
      );
    }
    return new InputKey(this.name, shape);
  }

  call(invocation: Invocation): KeyValue {
    const value = this.#find(invocation);
    return this.headers === 'all' ? (unquoted(value) as KeyValue) : value;
  }

  #find({ args }: Invocation): KeyValue {
    const [first = this.name, ...rest] = this.#path;
    const whole = this.shape?.names.get(this.name);
    if (whole) return args[whole[0] as number] as KeyValue;
    const named = this.shape?.names.get(first);
    const start = named ? args[named[0] as number] : this.#search(first, args);
    const value = follow(start, rest);
    if (value === undefined && (!named || rest.length > 0)) tellAbsent(this, this.shape);
    return value as KeyValue;
  }

  #search(name: string, args: readonly unknown[]): unknown {
    let found: unknown;
    let carriers = 0;
    let objects = 0;
    let primitives = 0;
    for (let position = 0; position < args.length; position++) {
      const argument = args[position];
      if (argument === null || argument === undefined) continue;
      if (typeof argument === 'function') {
        objects += 1;
        continue;
      }
      if (typeof argument !== 'object' || Array.isArray(argument)) {
        primitives += 1;
        continue;
      }
      objects += 1;
      if (this.shape?.unsearchable.has(position) || isRequestOrResponse(argument)) continue;
      const value = ownProperty(argument, name);
      if (value === undefined) continue;
      found = value;
      carriers += 1;
    }
    if (carriers > 1) {
      throw new KeyProblem(`${this} is ambiguous: ${carriers} arguments have such a property`);
    }
    if (objects === 0 && primitives > 0) {
      throw new KeyProblem(
        `${this} found no parameter of that name, and no argument that could have such a property`,
      );
    }
    return found;
  }

  toString(): string {
    return `input('${this.name}')`;
  }
}

/** A property that is not there may be a misspelled one: that is worth a word, once. */
function tellAbsent(key: BindableResolver, shape: MethodShape | undefined): void {
  shape?.warnOnce(`${shape.task}: ${key} found no such property, so the policy stepped aside.`);
}

function positionsOf(name: string, shape: MethodShape): readonly number[] {
  return shape.names.get(name) ?? shape.names.get(name.split('.')[0] as string) ?? [];
}

/** By its name; or found in the whole `@Headers()`, where nothing says that it is found elsewhere. */
function isHeader(name: string, shape: MethodShape): boolean {
  const [named] = positionsOf(name, shape);
  return named === undefined ? shape.headers.size > 0 : shape.headers.has(named);
}

/** Types whose values have no properties that could be an input. An Array is a list, not a record. */
function isPrimitiveType(type: unknown): boolean {
  return [String, Number, Boolean, BigInt, Symbol, Array].includes(type as never);
}

function isRequestOrResponse(value: object): boolean {
  const raw = (value as { raw?: unknown }).raw ?? value;
  return raw instanceof IncomingMessage || raw instanceof ServerResponse;
}

function follow(value: unknown, path: readonly string[]): unknown {
  return path.reduce(
    (parent, name) =>
      typeof parent === 'object' && parent !== null ? ownProperty(parent, name) : undefined,
    value,
  );
}

/** Own properties only: `__proto__`, `constructor` and inherited ones are nobody's input. */
function ownProperty(parent: object, name: string): unknown {
  return Object.hasOwn(parent, name) ? (parent as Record<string, unknown>)[name] : undefined;
}
