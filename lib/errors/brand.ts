import { attempt } from './reading.js';

/**
 * Errors are told apart by a brand, not by `instanceof`: an application may load the ESM and the
 * CJS copy of the package side by side, and each copy has classes of its own.
 */
const BRAND = Symbol.for('cmdx:error');

export function brand(error: Error, name: string): void {
  Object.defineProperty(error, BRAND, { value: name });
}

export function brandOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  return attempt(() => (error as Record<symbol, unknown>)[BRAND] as string | undefined);
}

export function hasBrand(error: unknown, name: string): boolean {
  return brandOf(error) === name;
}
