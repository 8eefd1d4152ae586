import { DefinitionError } from '../errors/definition.error.js';
import { type AnyClass, taskName } from '../metadata/method-name.js';
import { addLockedRow } from '../metadata/policy-records.js';

/**
 * Gives a parameter the row that `@WithRowLock` has locked, read under the lock: as the database
 * library maps it, or the columns as they are. With several keys, the rows in their order. What the
 * caller passes there is not looked at, so it is best the last and optional.
 *
 * @throws DefinitionError on a parameter of a constructor or of a static method; at boot on a method
 *   without `@WithRowLock`
 */
export function LockedRow(): ParameterDecorator {
  return (target, method, position) => {
    if (method === undefined) {
      throw new DefinitionError(
        '@LockedRow: expected a parameter of a method, got one of a constructor',
      );
    }
    if (typeof target === 'function') {
      throw new DefinitionError(
        `${taskName(target as AnyClass, method)}: @LockedRow: expected a method of instances, got a static method`,
      );
    }
    addLockedRow(target.constructor as AnyClass, method, position);
  };
}
