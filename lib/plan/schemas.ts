import { DefinitionError } from '../errors/definition.error.js';
import type { Schema } from '../policies/schema.js';
import { siteOf } from './context.js';
import type { MethodDeclaration } from './declaration.js';
import { mergedOf } from './inheritance.js';

/** One schema per argument. */
export function inputsOf(
  declaration: MethodDeclaration,
): readonly (Schema | undefined)[] | undefined {
  const written = schemaOf(declaration, 'inputSchema');
  if (written === undefined) return undefined;
  // Not `flat()`, which closes the gap in a list such as `[, second]`.
  return Array.isArray(written) ? Array.from<Schema | undefined>(written) : [written as Schema];
}

export function outputOf(declaration: MethodDeclaration): Schema | undefined {
  return schemaOf(declaration, 'outputSchema') as Schema | undefined;
}

/** @throws DefinitionError for a check by nothing */
function schemaOf(declaration: MethodDeclaration, name: 'inputSchema' | 'outputSchema'): unknown {
  const merged = mergedOf(declaration, name);
  if (!merged || merged.subject !== undefined) return merged?.subject;
  throw new DefinitionError(
    `${siteOf(declaration, name)}: expected a schema, own or inherited, got none`,
  );
}
