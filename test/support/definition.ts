import { isDefinitionError } from 'nestjs-cmdx';

/** The message of the DefinitionError that `define` throws. @throws Error when it throws none, or another error */
export function definitionMessage(define: () => unknown): string {
  try {
    define();
  } catch (error) {
    return messageOf(error);
  }
  throw new Error('expected a DefinitionError, got none');
}

/** The message of the DefinitionError with which `boot` rejects, see {@link definitionMessage}. */
export async function bootMessage(boot: Promise<unknown>): Promise<string> {
  try {
    await boot;
  } catch (error) {
    return messageOf(error);
  }
  throw new Error('expected a DefinitionError, got an application');
}

function messageOf(error: unknown): string {
  if (isDefinitionError(error)) return error.message;
  throw error;
}
