import { DefinitionError, show } from '../errors/definition.error.js';

/**
 * Starts many calls at once: all of them stand behind one barrier, and begin in the same turn of the
 * event loop. For tests of what keeps concurrent calls apart, which should fail without it.
 *
 * @param calls how many
 * @param call makes one of them, told its position from 0
 * @returns how each has ended, in their order, once all have
 * @throws DefinitionError unless `calls` is a whole number from 1
 */
export async function raceWith<T>(
  calls: number,
  call: (position: number) => T | Promise<T>,
): Promise<PromiseSettledResult<T>[]> {
  if (!Number.isSafeInteger(calls) || calls < 1) {
    throw new DefinitionError(`raceWith: expected a whole number from 1, got ${show(calls)}`);
  }
  let lift = (): void => undefined;
  const barrier = new Promise<void>((resolve) => (lift = resolve));
  const runners = Array.from({ length: calls }, async (_, position) => {
    await barrier;
    return call(position);
  });
  lift();
  return Promise.allSettled(runners) as Promise<PromiseSettledResult<T>[]>;
}
