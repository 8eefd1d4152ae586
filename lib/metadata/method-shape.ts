import type { MethodShape } from '../keys/key-resolver.js';
import { type AnyClass, taskName } from './method-name.js';
import {
  headerPositions,
  parameterTypes,
  routeParameterNames,
  transportPositions,
} from './nest-metadata.js';
import { parameterNamesOf } from './policy-records.js';

/** What is known of a method's parameters before it is called. */
export function shapeOf(
  target: AnyClass,
  method: PropertyKey,
  warnOnce: (message: string) => void,
): MethodShape {
  const names = new Map<string, number[]>();
  const add = (name: string, index: number): void => {
    const positions = names.get(name) ?? [];
    if (!positions.includes(index)) names.set(name, [...positions, index]);
  };
  for (const [name, positions] of parameterNamesOf(target, method)) {
    for (const index of positions) add(name, index);
  }
  for (const { name, index } of routeParameterNames(target, method)) add(name, index);
  return {
    task: taskName(target, method),
    names,
    unsearchable: transportPositions(target, method),
    headers: headerPositions(target, method),
    types: parameterTypes(target, method),
    warnOnce,
  };
}
