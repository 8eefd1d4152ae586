const MOST_BYTES_PER_UNIT = 3;

/**
 * Whether a text takes more than so many bytes as UTF-8. Most texts are so short that nobody has to
 * count, which would cost a call of native code.
 */
export function exceedsBytes(text: string, most: number): boolean {
  return text.length * MOST_BYTES_PER_UNIT > most && Buffer.byteLength(text) > most;
}
