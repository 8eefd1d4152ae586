import { type Duration, toMilliseconds } from '../clock/duration.js';
import { DefinitionError, show } from '../errors/definition.error.js';

/**
 * What `Store.incr` was asked for.
 *
 * @throws DefinitionError when `by` is no whole number or `ttl` no duration
 */
export function incrementOf(options: { readonly by?: number; readonly ttl: Duration }): {
  readonly by: number;
  readonly ttlMs: number;
} {
  const { by = 1 } = options;
  if (!Number.isSafeInteger(by)) {
    throw new DefinitionError(`Store.incr option "by": expected a whole number, got ${show(by)}`);
  }
  return { by, ttlMs: toMilliseconds(options.ttl, 'Store.incr option "ttl"') };
}
