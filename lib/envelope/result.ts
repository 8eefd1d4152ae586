import type { Replay } from '../answer.js';
import type { RefusalMetadata } from '../errors/refusals.js';
import { once } from '../process-wide.js';

declare const bodyCode: unique symbol;

/**
 * A code that a body gave to `skip` or `fail`: a string, typed apart from strings, so that comparing
 * `metadata.code` with the code of a refusal tells the two apart. `String(code)` reads it.
 */
export interface BodyCode {
  readonly [bodyCode]: true;
  toString(): string;
}

/** What a body said about itself with `skip` or `fail`; empty for a success or a thrown error. */
export interface BodyMetadata {
  readonly code?: BodyCode;
  readonly [name: string]: unknown;
}

/** How one invocation of a guarded method ended. Frozen. */
export interface Result<T = unknown> {
  readonly status: 'success' | 'skipped' | 'failed';
  /** `'complete'` when the body ran to its end, `'interrupted'` when a policy, `skip`, `fail` or an error ended it. */
  readonly state: 'complete' | 'interrupted';
  /** Not failed. */
  readonly ok: boolean;
  /** Not a success. */
  readonly ko: boolean;
  /** What the body returned; or the first answer, where a duplicate was given it again. */
  readonly value?: T | undefined;
  readonly reason?: string | undefined;
  /** A refusal's facts, told apart by `code`; or what `skip` and `fail` were given. */
  readonly metadata: RefusalMetadata | BodyMetadata;
  /** The error that the caller got. */
  readonly cause?: unknown;
  /** `ClassName.methodName`. */
  readonly task: string;
  readonly tid: string;
  readonly cid: string;
  readonly xid: string | undefined;
  /** How often the body was repeated. */
  readonly retries: number;
  readonly durationMs: number;
}

/** How the body of an invocation ended, or why it did not begin. */
export type Outcome =
  | { readonly status: 'success'; readonly value: unknown }
  | {
      readonly status: 'skipped';
      readonly reason: string | undefined;
      readonly metadata: RefusalMetadata | Readonly<Record<string, unknown>>;
      /** What a duplicate was given instead. */
      readonly replay?: Replay | undefined;
    }
  | {
      readonly status: 'failed';
      readonly error: unknown;
      readonly reason: string | undefined;
      readonly metadata: RefusalMetadata | Readonly<Record<string, unknown>>;
    };

interface Remembered {
  readonly result: Result;
  /** The run whose failure with the same error would be this failure on its way out. */
  readonly passesTo: string | undefined;
}

/** The Result of the innermost invocation that failed with an error object. */
const failures = once('failures', () => new WeakMap<object, Remembered>());

/**
 * The `Result` of the invocation that failed with this error: of the innermost one, when the error
 * passed through several. `undefined` for thrown primitives and errors of unguarded code.
 */
export function resultOf(error: unknown): Result | undefined {
  return typeof error === 'object' && error !== null ? failures.get(error)?.result : undefined;
}

/** @param parentTid the invocation around the one that failed */
export function rememberFailure(
  error: unknown,
  result: Result,
  parentTid: string | undefined,
): void {
  if (typeof error !== 'object' || error === null) return;
  const known = failures.get(error);
  const innermost = known?.passesTo === result.tid ? known.result : result;
  failures.set(error, { result: innermost, passesTo: parentTid });
}
