import { randomFillSync } from 'node:crypto';

const DIGITS = Buffer.from('0123456789abcdef');
/** Where the random digits stand; between them are the dashes, the version and the variant. */
const RANDOM_AT = [15, 16, 17, 20, 21, 22, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35];
const VARIANT_AT = 19;

const text = Buffer.from('00000000-0000-7000-8000-000000000000');
const random = new Uint8Array(4_096);
let used = random.length;
let lastMs = 0;

/**
 * A uuid v7 (RFC 9562): 48 bits of the time of day in milliseconds, then random bits. Ids of one
 * millisecond are in no order.
 *
 * Not taken from a package, because every lease needs one and it was the dearest part of taking a
 * lease: written digit by digit into one buffer it costs half of what putting it together from
 * Node's own random uuid does, and leaves one string behind instead of a dozen.
 */
export function newId(): string {
  const ms = Date.now();
  if (ms !== lastMs) {
    lastMs = ms;
    const digits = ms.toString(16).padStart(12, '0');
    text.write(`${digits.slice(0, 8)}-${digits.slice(8)}`, 'latin1');
  }
  if (used + RANDOM_AT.length >= random.length) {
    randomFillSync(random);
    used = 0;
  }
  for (const at of RANDOM_AT) text[at] = DIGITS[(random[used++] as number) & 15] as number;
  text[VARIANT_AT] = DIGITS[8 + ((random[used++] as number) & 3)] as number;
  return text.toString('latin1');
}
