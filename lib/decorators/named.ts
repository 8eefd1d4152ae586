import { DefinitionError, show } from '../errors/definition.error.js';
import { type AnyClass, taskName } from '../metadata/method-name.js';
import { addParameterName } from '../metadata/policy-records.js';

/**
 * Names a parameter, so that `input('name')` finds it: JavaScript keeps no parameter names.
 *
 * @throws DefinitionError for an empty name, or on a constructor's parameter
 */
export function Named(name: string): ParameterDecorator {
  return (target, method, position) => {
    if (typeof name !== 'string' || name === '') {
      throw new DefinitionError(`@Named: expected a non-empty string, got ${show(name)}`);
    }
    if (method === undefined) {
      throw new DefinitionError(
        `@Named('${name}'): expected a parameter of a method, got one of a constructor`,
      );
    }
    if (typeof target === 'function') {
      throw new DefinitionError(
        `${taskName(target as AnyClass, method)}: @Named('${name}'): expected a method of instances, got a static method`,
      );
    }
    addParameterName(target.constructor as AnyClass, method, name, position);
  };
}
