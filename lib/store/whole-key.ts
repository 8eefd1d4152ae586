import { DefinitionError, show } from '../errors/definition.error.js';

/**
 * The store key that an operator has passed.
 *
 * @param where names service and method in the error, for example `CircuitBreakers.reset`
 * @throws DefinitionError unless it is a non-empty string
 */
export function wholeKey(key: unknown, where: string): string {
  if (typeof key === 'string' && key !== '') return key;
  throw new DefinitionError(`${where}: expected a store key, got ${show(key)}`);
}
