import type { MethodShape } from '../keys/key-resolver.js';
import { type AnyClass, taskName } from './method-name.js';
import {
  headerPositions,
  parameterTypes,
  routeParameterNames,
  transportPositions,
} from './nest-metadata.js';
import { lockedRowOf, parameterNamesOf } from './policy-records.js';

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
  // What is passed there is no input: it is replaced by the row.
  const row = lockedRowOf(target, method);
  const unsearchable = transportPositions(target, method);
  const types = parameterTypes(target, method);
  return {
    task: taskName(target, method),
    names,
    unsearchable: row === undefined ? unsearchable : new Set([...unsearchable, row]),
    headers: headerPositions(target, method),
    types: row === undefined ? types : types?.toSpliced(row, 1),
    warnOnce,
  };
}
