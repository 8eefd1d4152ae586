const QUOTED = /^ *"((?:[^"\\]|\\["\\])*)" *$/;

/**
 * The text of a header's value: what it quotes, if it is a structured-field string (RFC 9651 section
 * 3.3.3), else the value as it is. So `"k"` and `k` are one key.
 */
export function unquoted<T>(value: T): T | string {
  if (typeof value !== 'string') return value;
  const inner = QUOTED.exec(value)?.[1];
  return inner === undefined ? value : inner.replaceAll(/\\(["\\])/g, '$1');
}
