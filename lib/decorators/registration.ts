import { DefinitionError, show } from '../errors/definition.error.js';

/**
 * Checks what an application registers under a name of its own.
 *
 * @param builtIn the names that are taken
 * @param site who registers it, for example `Accounts: @RegisterLimiter`
 * @throws DefinitionError for a built-in or empty name, or for what is no function
 */
export function checkRegistration(
  builtIn: readonly string[],
  name: unknown,
  entry: unknown,
  site: string,
): void {
  if (typeof name !== 'string' || name === '' || builtIn.includes(name)) {
    throw new DefinitionError(
      `${site}: expected a name other than ${builtIn.join(', ')}, got ${show(name)}`,
    );
  }
  if (typeof entry !== 'function') {
    throw new DefinitionError(`${site}("${name}"): expected a function, got ${show(entry)}`);
  }
}
