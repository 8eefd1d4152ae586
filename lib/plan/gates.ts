import { types } from 'node:util';
import type { CompiledGate, CompiledRetryGate } from '../envelope/plan.js';
import { DefinitionError } from '../errors/definition.error.js';
import type { Invocation } from '../invocation.js';
import type { Gate, GateObject, RetryGate, RetryOptions } from '../policies/options.js';
import type { MethodDeclaration, WrittenOptions } from './declaration.js';

/**
 * The gates of a policy in the order in which they are asked.
 *
 * @param site names the decorator in the error
 * @throws DefinitionError when a gate names a method that instances do not have
 */
export function compileGates(
  options: WrittenOptions,
  declaration: MethodDeclaration,
  site: string,
): readonly CompiledGate[] {
  return (['if', 'unless'] as const).flatMap((name) => {
    const gate = options[name];
    const wanted = name === 'if';
    return gate === undefined
      ? []
      : [compileGate(gate, wanted, declaration, `${site} option "${name}"`)];
  });
}

/**
 * The gates of a retry, which are asked about an error and a repetition instead of the arguments.
 *
 * @throws DefinitionError when a gate names a method that instances do not have
 */
export function compileRetryGates(
  options: RetryOptions,
  declaration: MethodDeclaration,
  site: string,
): readonly CompiledRetryGate[] {
  return (['if', 'unless'] as const).flatMap((name) => {
    const gate = options[name];
    if (gate === undefined) return [];
    const wanted = name === 'if';
    const ask = callable(gate, declaration, `${site} option "${name}"`);
    return [{ read: (invocation, error, attempt) => ask(invocation, [error, attempt]), wanted }];
  });
}

/** Calls a gate, whatever its form, with these arguments. */
function callable(
  gate: Gate | RetryGate,
  declaration: MethodDeclaration,
  where: string,
): (invocation: Invocation, args: readonly unknown[]) => unknown {
  if (typeof gate === 'boolean') return () => gate;
  if (typeof gate === 'string') {
    assertMethod(gate, declaration, where);
    return ({ instance }, args) =>
      (instance as Record<string, (...args: unknown[]) => unknown>)[gate]?.(...args);
  }
  if (typeof gate === 'function') {
    const fn = gate as unknown as (...args: unknown[]) => unknown;
    return ({ instance }, args) => fn.apply(instance, [...args]);
  }
  const call = gate.call as unknown as (...args: unknown[]) => unknown;
  return (invocation, args) => call.call(gate, invocation, ...args);
}

function assertMethod(
  name: string,
  declaration: MethodDeclaration,
  where: string,
): (...args: never[]) => unknown {
  const method = declaration.methodNamed(name);
  if (method) return method;
  throw new DefinitionError(
    `${where}: expected the name of a method of ${declaration.className}, got "${name}"`,
  );
}

function compileGate(
  gate: Gate,
  wanted: boolean,
  declaration: MethodDeclaration,
  where: string,
): CompiledGate {
  const ask = callable(gate, declaration, where);
  return {
    read: (invocation) => ask(invocation, isObject(gate) ? [] : invocation.args),
    async: types.isAsyncFunction(functionOf(gate, declaration)),
    wanted,
  };
}

function functionOf(gate: Gate, declaration: MethodDeclaration): unknown {
  if (typeof gate === 'string') return declaration.methodNamed(gate);
  return isObject(gate) ? gate.call : gate;
}

function isObject(gate: Gate): gate is GateObject & { readonly apply?: never } {
  return typeof gate === 'object';
}
