/**
 * Anything can be thrown: a value of which no text can be made, an error whose getters throw, a
 * revoked proxy. Whoever looks at one must not fail over it, because leases are still to be given
 * back then.
 */

/** The message of an error; `undefined` for anything else, and for one that cannot be read. */
export function messageOf(thrown: unknown): string | undefined {
  return attempt(() => (thrown instanceof Error ? thrown.message : undefined));
}

/** One line about what was thrown. */
export function describeThrown(thrown: unknown): string {
  return messageOf(thrown) ?? attempt(() => String(thrown)) ?? 'a value that cannot be read';
}

/** What a log should have of what was thrown: the stack, where there is one. */
export function stackOf(thrown: unknown): string {
  const stack = attempt(() => (thrown instanceof Error ? thrown.stack : undefined));
  return stack ?? describeThrown(thrown);
}

/** @returns `undefined` when `read` throws */
export function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
