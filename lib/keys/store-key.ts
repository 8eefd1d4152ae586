import { createHash } from 'node:crypto';
import { exceedsBytes } from '../bytes.js';
import { show } from '../errors/definition.error.js';
import { KeyProblem } from './key-resolver.js';

const LONGEST_SEGMENT_BYTES = 200;
const HASHED = 'sha256-';
/**
 * Suffixes that policies append to a key for a second record of theirs; as written, and as escaped
 * any number of times, so that what is escaped never meets what was written so.
 */
const RESERVED_SUFFIX = /(?::|%(?:25)*3A)(?:lb|f)$/;

/** Composes the keys under which policies keep their state. */
export const StoreKey = {
  /**
   * Joins the parts with `:`, for example `cmdx:lock:Accounts.reconcile:acct_42`.
   *
   * @throws Error when a part is empty
   */
  compose(namespace: string, task: string, segment?: string): string {
    const parts = segment === undefined ? [namespace, task] : [namespace, task, segment];
    if (parts.some((part) => part === '')) {
      throw new Error(`StoreKey.compose: expected non-empty parts, got ${show(parts.join(':'))}`);
    }
    return parts.join(':');
  },
};

/**
 * A key's value as the last part of a store key.
 *
 * @returns `undefined` for a blank value
 * @throws KeyProblem for anything but a string, number or bigint
 */
export function toSegment(value: unknown): string | undefined {
  const text = toText(value);
  if (text === undefined) return undefined;
  if (exceedsBytes(text, LONGEST_SEGMENT_BYTES) || text.startsWith(HASHED)) {
    // Hashing a raw value that starts like a hash keeps it from meeting the value it is a hash of.
    return HASHED + createHash('sha256').update(text).digest('hex');
  }
  return endsReserved(text) ? escapePart(text) : text;
}

/** Most texts are told by their last letter, without the cost of an expression that searches them. */
function endsReserved(text: string): boolean {
  return (text.endsWith('f') || text.endsWith('lb')) && RESERVED_SUFFIX.test(text);
}

/** The text of a string, number or bigint; `undefined` for a blank value. */
export function toText(value: unknown): string | undefined {
  switch (typeof value) {
    case 'string':
      return value === '' ? undefined : value;
    case 'number':
      if (Number.isFinite(value)) return String(value);
      break;
    case 'bigint':
      return String(value);
    default:
      if (value === null || value === undefined) return undefined;
  }
  throw new KeyProblem(`expected a string, number or bigint, got ${show(value)}`);
}

/** Escapes what separates the parts of a key, so that `a:b` + `c` and `a` + `b:c` stay apart. */
export function escapePart(text: string): string {
  return text.replaceAll('%', '%25').replaceAll(':', '%3A');
}
