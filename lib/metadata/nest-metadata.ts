import type { DynamicModule } from '@nestjs/common';
import { Observable } from 'rxjs';
import { type AnyClass, findMethod } from './method-name.js';

/**
 * What Nest writes on classes and methods, as far as we read it. Nest 12 no longer exports these
 * names from its public door; they have been the same for years and are part of how enhancers work.
 */
const ROUTE_PATH = 'path';
const ROUTE_METHOD = 'method';
const ROUTE_ARGUMENTS = '__routeArguments__';
const RESPONSE_PASSTHROUGH = '__responsePassthrough__';
const CUSTOM_ARGUMENT = '__customRouteArgs__';
const HANDLER_MARKS = [
  'microservices:pattern',
  'websockets:message_mapping',
  'graphql:resolver_type',
  'graphql:resolve_property',
  'graphql:resolve_reference',
];
const REDIRECT = '__redirect__';
const RENDER = '__renderTemplate__';
const SSE = '__sse__';
const INJECTED_PARAMETERS = 'self:paramtypes';
const INJECTED_PROPERTIES = 'self:properties_metadata';
const MODULE_IMPORTS = 'imports';
const MODULE_PROVIDERS = 'providers';
const PARAMETER_TYPES = 'design:paramtypes';
const RETURN_TYPE = 'design:returntype';

/** Nest's `RouteParamtypes` that hold no input of the caller. */
const REQUEST = 0;
const RESPONSE = 1;
const NEXT = 2;
/** Nest's `RouteParamtypes` whose `data` names an input: body, query, param, headers. */
const NAMED_KINDS: ReadonlySet<number> = new Set([3, 4, 5, 6]);
const HEADERS = 6;

interface RouteArgument {
  readonly kind: number | 'custom';
  readonly index: number;
  readonly data: unknown;
}

/** Whether Nest itself calls the method: a route, a message or event pattern, a socket message, a resolver. */
export function isNestHandler(target: AnyClass, method: PropertyKey): boolean {
  const handler: unknown = findMethod(target, method)?.value;
  if (typeof handler !== 'function') return false;
  if (Reflect.hasMetadata(ROUTE_PATH, handler) && Reflect.hasMetadata(ROUTE_METHOD, handler)) {
    return true;
  }
  return HANDLER_MARKS.some((mark) => Reflect.hasMetadata(mark, handler));
}

/** The names of every method on the prototype chain, `Object`'s own left out. */
export function methodNames(target: AnyClass): ReadonlySet<PropertyKey> {
  const names = new Set<PropertyKey>();
  for (
    let prototype: object | null = target.prototype;
    prototype !== null && prototype !== Object.prototype;
    prototype = Object.getPrototypeOf(prototype)
  ) {
    for (const name of Reflect.ownKeys(prototype)) {
      if (name !== 'constructor') names.add(name);
    }
  }
  return names;
}

/** The names that `@Param('x')`, `@Query('x')`, `@Body('x')` and `@Headers('x')` give to parameters. */
export function routeParameterNames(
  target: AnyClass,
  method: PropertyKey,
): readonly { readonly name: string; readonly index: number }[] {
  return routeArguments(target, method).flatMap(({ kind, data, index }) =>
    typeof kind === 'number' && NAMED_KINDS.has(kind) && typeof data === 'string'
      ? [{ name: data, index }]
      : [],
  );
}

/** Positions that receive the request, the response or `next`. */
export function transportPositions(target: AnyClass, method: PropertyKey): ReadonlySet<number> {
  return new Set(
    routeArguments(target, method)
      .filter(({ kind }) => kind === REQUEST || kind === RESPONSE || kind === NEXT)
      .map(({ index }) => index),
  );
}

/** Positions that receive a header, or all of them. */
export function headerPositions(target: AnyClass, method: PropertyKey): ReadonlySet<number> {
  return new Set(
    routeArguments(target, method)
      .filter(({ kind }) => kind === HEADERS)
      .map(({ index }) => index),
  );
}

/** Whether the handler answers by itself: `@Res()` or `@Next()` without `passthrough`. */
export function answersByItself(target: AnyClass, method: PropertyKey): boolean {
  return (
    routeArguments(target, method).some(({ kind }) => kind === RESPONSE || kind === NEXT) &&
    Reflect.getMetadata(RESPONSE_PASSTHROUGH, target, method as string) !== true
  );
}

/** Whether the handler answers with a stream of events: `@Sse()`. */
export function streamsEvents(target: AnyClass, method: PropertyKey): boolean {
  return Reflect.hasMetadata(SSE, findMethod(target, method)?.value as object);
}

/** Whether a view is made of the handler's value: `@Render()`. */
export function renders(target: AnyClass, method: PropertyKey): boolean {
  return Reflect.hasMetadata(RENDER, findMethod(target, method)?.value as object);
}

/** The decorator with which a handler's answer is no body made of its value: it cannot say that it was skipped. */
export function fixedAnswer(target: AnyClass, method: PropertyKey): string | undefined {
  if (answersByItself(target, method)) return '@Res() or @Next() without { passthrough: true }';
  const handler = findMethod(target, method)?.value as object;
  if (Reflect.hasMetadata(REDIRECT, handler)) return '@Redirect()';
  return renders(target, method) ? '@Render()' : undefined;
}

/** The emitted parameter types, `undefined` when the toolchain emits none. */
export function parameterTypes(
  target: AnyClass,
  method: PropertyKey,
): readonly unknown[] | undefined {
  return Reflect.getMetadata(PARAMETER_TYPES, target.prototype, method as string) as
    readonly unknown[] | undefined;
}

/** Whether the method's written return type is an Observable, as far as the toolchain emits it. */
export function returnsObservable(prototype: object, method: PropertyKey): boolean {
  return Reflect.getMetadata(RETURN_TYPE, prototype, method as string) === Observable;
}

/** What Nest injects into a class: into its constructor, by type and by token, and into properties. */
export function injectedTokens(target: AnyClass): readonly unknown[] {
  const read = <T>(name: string): readonly T[] => Reflect.getMetadata(name, target) ?? [];
  return [
    ...read<unknown>(PARAMETER_TYPES),
    ...read<{ readonly param: unknown }>(INJECTED_PARAMETERS).map(({ param }) => param),
    ...read<{ readonly type: unknown }>(INJECTED_PROPERTIES).map(({ type }) => type),
  ];
}

/** What a module imports and provides, static and dynamic; nothing for what is not known yet. */
export function moduleMetadata(module: unknown): {
  readonly imports: readonly unknown[];
  readonly providers: readonly unknown[];
} {
  const dynamic = (typeof module === 'object' ? (module ?? {}) : {}) as Partial<DynamicModule>;
  const target: unknown = dynamic.module ?? module;
  const read = (name: string): readonly unknown[] =>
    typeof target === 'function' ? (Reflect.getMetadata(name, target) ?? []) : [];
  return {
    imports: [...read(MODULE_IMPORTS), ...(dynamic.imports ?? [])],
    providers: [...read(MODULE_PROVIDERS), ...(dynamic.providers ?? [])],
  };
}

function routeArguments(target: AnyClass, method: PropertyKey): readonly RouteArgument[] {
  const written = (Reflect.getMetadata(ROUTE_ARGUMENTS, target, method as string) ?? {}) as Record<
    string,
    { readonly index: number; readonly data?: unknown }
  >;
  return Object.entries(written).map(([key, { index, data }]) => ({
    kind: key.includes(CUSTOM_ARGUMENT) ? 'custom' : Number(key.split(':')[0]),
    index,
    data,
  }));
}
