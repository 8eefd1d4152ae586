import { types } from 'node:util';
import type { CompiledGate } from '../envelope/plan.js';
import { DefinitionError } from '../errors/definition.error.js';
import type { Invocation } from '../invocation.js';
import type { Gate } from '../policies/options.js';
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

function compileGate(
  gate: Gate,
  wanted: boolean,
  declaration: MethodDeclaration,
  where: string,
): CompiledGate {
  if (typeof gate === 'boolean') return { read: () => gate, async: false, wanted };
  if (typeof gate === 'string') {
    const method = declaration.methodNamed(gate);
    if (!method) {
      throw new DefinitionError(
        `${where}: expected the name of a method of ${declaration.className}, got "${gate}"`,
      );
    }
    return {
      read: (invocation) => callMethod(invocation, gate),
      async: types.isAsyncFunction(method),
      wanted,
    };
  }
  if (typeof gate === 'function') {
    const fn = gate as unknown as (...args: unknown[]) => unknown;
    return {
      read: (invocation) => fn.apply(invocation.instance, [...invocation.args]),
      async: types.isAsyncFunction(fn),
      wanted,
    };
  }
  return {
    read: (invocation) => gate.call(invocation),
    async: types.isAsyncFunction(gate.call),
    wanted,
  };
}

function callMethod(invocation: Invocation, name: string): unknown {
  const instance = invocation.instance as Record<string, (...args: unknown[]) => unknown>;
  return instance[name]?.(...invocation.args);
}
