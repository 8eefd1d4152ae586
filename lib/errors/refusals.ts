import { STATUS_CODES } from 'node:http';
import { HttpException } from '@nestjs/common';
import { brand, brandOf, hasBrand } from './brand.js';
import type { StoreErrorReason } from './store.error.js';

/** The policies that can refuse, in the order of the envelope: from the outside in. */
export const POLICY_NAMES = ['rateLimit', 'circuitBreaker', 'lock', 'idempotency'] as const;

export type PolicyName = (typeof POLICY_NAMES)[number];

/** What a full rate limit says, to the caller's `Result` and to `rate_limit_exceeded`. */
export interface RateLimitedMetadata {
  readonly code: 'rate_limited';
  readonly rateLimitKey: string;
  readonly limiter: string;
  readonly onLimit: 'fail' | 'skip';
  readonly max: number;
  /** Seconds: the window of `fixed_window`, or the time to leak one unit of `leaky_bucket`. */
  readonly per: number;
  /** Starts counted in this window, this denied one included (`fixed_window`). */
  readonly count?: number;
  /** The fill that this start would have reached, in units (`leaky_bucket`). */
  readonly level?: number;
  /** Seconds after which a lone caller is admitted. */
  readonly retryAfter?: number;
}

/** What an open circuit breaker says, to the caller's `Result` and to `circuit_rejected`. */
export interface CircuitOpenMetadata {
  readonly code: 'circuit_open';
  readonly circuitKey: string;
  readonly onOpen: 'fail' | 'skip';
  readonly epoch: number;
  /** Seconds until a probe may be let in; absent when an operator has forced it open. */
  readonly retryAfter?: number;
}

/** What a busy lock says, to the caller's `Result` and to `lock_busy`. */
export interface BusyMetadata {
  readonly code: 'busy';
  readonly lockKey: string;
  readonly onBusy: 'fail' | 'skip';
  /** The `tid` of the run that holds the lease. */
  readonly holder?: string;
  /** Seconds until the lease runs out, if its holder does not release it before. */
  readonly retryAfter?: number;
}

interface IdempotencyMetadata {
  readonly idempotencyKey: string;
  /** Which run of the key the record speaks of. */
  readonly run: number;
  /** The `tid` of that run. */
  readonly holder?: string;
}

/** The work of the key is done; said to the caller's `Result` and to `idempotency_duplicate`. */
export interface DuplicateMetadata extends IdempotencyMetadata {
  readonly code: 'duplicate';
  readonly onDuplicate: 'replay' | 'skip' | 'fail';
  /** Whether the first answer was kept and can be given to this caller. */
  readonly replayable: boolean;
}

/** An earlier call with the key is at work; said to the caller's `Result` and to `idempotency_in_progress`. */
export interface InProgressMetadata extends IdempotencyMetadata {
  readonly code: 'in_progress';
  readonly onInProgress: 'fail' | 'skip' | 'wait';
  /** Seconds until its lease runs out, if its owner is gone; an owner at work renews it. */
  readonly retryAfter?: number;
}

/** An earlier call with the key never told how it ended; said to the `Result` and to `idempotency_abandoned`. */
export interface AbandonedMetadata extends IdempotencyMetadata {
  readonly code: 'abandoned';
}

/** The key was used for something else before; said to the `Result` and to `idempotency_mismatch`. */
export interface PayloadMismatchMetadata extends IdempotencyMetadata {
  readonly code: 'payload_mismatch';
}

/** One thing that is wrong with an input or an output. */
export interface SchemaIssue {
  readonly message: string;
  /** Where, for example `0.address.city`: the position of the argument, then names. */
  readonly path: string;
}

/** The arguments do not fit the `@InputSchema`. */
export interface InputInvalidMetadata {
  readonly code: 'input_invalid';
  readonly issues: readonly SchemaIssue[];
}

/** What the body returned does not fit the `@OutputSchema`. */
export interface OutputInvalidMetadata {
  readonly code: 'output_invalid';
  readonly issues: readonly SchemaIssue[];
}

/** Another transaction holds the row, or did for longer than the call waits. */
export interface RowLockedMetadata {
  readonly code: 'row_locked';
  /** Schema and table. */
  readonly table: string;
  readonly onBusy: 'fail' | 'skip';
  /** Milliseconds. */
  readonly waitedMs: number;
}

/** The database ended the transaction: it can only be begun anew. */
export interface RowConflictMetadata {
  readonly code: 'row_conflict';
  readonly table: string;
  /** What the database said: a deadlock (40P01), or an isolation that cannot be kept (40001). */
  readonly sqlState: string;
}

/** There is no row of that key. */
export interface RowMissingMetadata {
  readonly code: 'row_missing';
  readonly table: string;
}

/** Whose key it is. */
export type KeyOwner = PolicyName | 'rowLock';

export interface KeyMissingMetadata {
  readonly code: 'key_missing';
  readonly policy: KeyOwner;
}

export interface KeyInvalidMetadata {
  readonly code: 'key_invalid';
  readonly policy: KeyOwner;
}

export interface StoreUnavailableMetadata {
  readonly code: 'store_unavailable';
  readonly operation: string;
  /** The policies that needed the store. */
  readonly policies: readonly PolicyName[];
  readonly reason: StoreErrorReason;
  /** Seconds. */
  readonly retryAfter: number;
}

export interface ShuttingDownMetadata {
  readonly code: 'shutting_down';
}

/** What a refusal says about itself, told apart by `code`. */
export type RefusalMetadata =
  | RateLimitedMetadata
  | CircuitOpenMetadata
  | BusyMetadata
  | DuplicateMetadata
  | InProgressMetadata
  | AbandonedMetadata
  | PayloadMismatchMetadata
  | RowLockedMetadata
  | RowConflictMetadata
  | RowMissingMetadata
  | InputInvalidMetadata
  | OutputInvalidMetadata
  | KeyMissingMetadata
  | KeyInvalidMetadata
  | StoreUnavailableMetadata
  | ShuttingDownMetadata;

export type RefusalCode = RefusalMetadata['code'];

/** What a client may see of a refusal: never a store key, never a holder. */
export interface PublicRefusalBody {
  readonly statusCode: number;
  readonly error: string;
  /** A list for an invalid input, as Nest's own pipes answer it. */
  readonly message: string | readonly string[];
  readonly code: string;
  /** Seconds. */
  readonly retryAfter?: number;
}

/** Where a refusal happened. */
export interface RefusalSite {
  /** `ClassName.methodName`. */
  readonly task: string;
  /** The run that was refused. */
  readonly tid: string;
}

/**
 * A policy said no: the body never ran. It is an `HttpException`, so guards, pipes, middleware and
 * filters that know Nest answer it with its own status; `getResponse()` is the public body.
 */
export abstract class RefusalError<
  M extends RefusalMetadata = RefusalMetadata,
> extends HttpException {
  /** The full facts, for code and logs. They name keys and holders: keep them from clients. */
  readonly metadata: M;
  readonly task: string;
  readonly tid: string;

  protected constructor(
    metadata: M,
    site: RefusalSite,
    wording: {
      status: number;
      public: string | readonly string[];
      detail: string;
      cause?: unknown;
    },
  ) {
    super(
      publicBody(wording.status, wording.public, metadata.code, retryAfterOf(metadata)),
      wording.status,
      { cause: wording.cause },
    );
    this.name = new.target.name;
    this.message = `${site.task}: ${wording.detail}`;
    this.metadata = Object.freeze(metadata);
    this.task = site.task;
    this.tid = site.tid;
    brand(this, `refusal:${metadata.code}`);
  }

  get code(): M['code'] {
    return this.metadata.code;
  }

  /** Seconds after which another try may succeed, when that is known. */
  get retryAfter(): number | undefined {
    return retryAfterOf(this.metadata);
  }

  /** `instanceof RefusalError` and `@Catch(RefusalError)` see the refusals of every copy of the package. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    return this === (RefusalError as unknown)
      ? isRefusalError(value)
      : Function.prototype[Symbol.hasInstance].call(this, value);
  }
}

/** The rate limit is full: 429. */
export class RateLimitedError extends RefusalError<RateLimitedMetadata> {
  constructor(metadata: RateLimitedMetadata, site: RefusalSite) {
    super(metadata, site, {
      status: 429,
      public: 'Too many requests, please try again later.',
      detail: `the rate limit of ${metadata.max} (${metadata.limiter}, per ${metadata.per} s) is used up`,
    });
  }
}

/** The circuit breaker is open: 503. */
export class CircuitOpenError extends RefusalError<CircuitOpenMetadata> {
  constructor(metadata: CircuitOpenMetadata, site: RefusalSite) {
    super(metadata, site, {
      status: 503,
      public: 'The service is temporarily unavailable.',
      detail: 'the circuit breaker is open',
    });
  }
}

/** An argument does not fit the schema: 400. The issues are public. */
export class InputInvalidError extends RefusalError<InputInvalidMetadata> {
  constructor(metadata: InputInvalidMetadata, site: RefusalSite) {
    const lines = linesOf(metadata.issues);
    super(metadata, site, {
      status: 400,
      public: lines,
      detail: `invalid input: ${lines.join('; ')}`,
    });
  }
}

/** What the body returned does not fit the schema: 500. The body has run. */
export class OutputInvalidError extends RefusalError<OutputInvalidMetadata> {
  constructor(metadata: OutputInvalidMetadata, site: RefusalSite) {
    super(metadata, site, {
      status: 500,
      public: 'Internal server error',
      detail: `invalid output: ${linesOf(metadata.issues).join('; ')}`,
    });
  }
}

/** A request must not be answered with many times its own size. */
const MOST_LINES = 20;
const LONGEST_LINE = 200;

/** The first issues, one line each; `metadata.issues` has them all. */
function linesOf(issues: readonly SchemaIssue[]): string[] {
  const lines = issues.slice(0, MOST_LINES).map(({ path, message }) => {
    const line = path === '' ? message : `${path}: ${message}`;
    return line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE - 1)}…` : line;
  });
  const left = issues.length - lines.length;
  return left > 0 ? [...lines, `and ${left} more`] : lines;
}

/** Another run holds the lock: 409. */
export class LockBusyError extends RefusalError<BusyMetadata> {
  constructor(metadata: BusyMetadata, site: RefusalSite) {
    super(metadata, site, {
      status: 409,
      public: 'This operation is already running.',
      detail: 'another run holds the lock',
    });
  }
}

/**
 * The work of the key is done, and the first answer is not given again: because `onDuplicate` is
 * `'fail'`, or because it could not be kept (`replayable` is false). 409.
 */
export class DuplicateError extends RefusalError<DuplicateMetadata> {
  constructor(metadata: DuplicateMetadata, site: RefusalSite) {
    super(metadata, site, {
      status: 409,
      public: 'This operation has already been done.',
      detail: metadata.replayable
        ? 'the work of this key is done'
        : 'the work of this key is done, but its answer was not kept or cannot be given again',
    });
  }

  /** Whether the first answer was kept and can be given to this caller. */
  get replayable(): boolean {
    return this.metadata.replayable;
  }
}

/** An earlier call with the key is at work: 409. */
export class InProgressError extends RefusalError<InProgressMetadata> {
  constructor(metadata: InProgressMetadata, site: RefusalSite) {
    super(metadata, site, {
      status: 409,
      public: 'This operation is already in progress.',
      detail: 'an earlier call with this key is at work',
    });
  }
}

/** An earlier call with the key began and never told how it ended: 409. */
export class AbandonedError extends RefusalError<AbandonedMetadata> {
  constructor(metadata: AbandonedMetadata, site: RefusalSite) {
    super(metadata, site, {
      status: 409,
      public: 'An earlier attempt of this operation ended with an unknown outcome.',
      detail:
        "an earlier call with this key began and never told how it ended; find out what it did, then call IdempotencyRecords.forget(key) with metadata.idempotencyKey, or let such calls run again with onAbandoned: 'rerun'",
    });
  }
}

/** The key was used for another payload before: 422. */
export class PayloadMismatchError extends RefusalError<PayloadMismatchMetadata> {
  constructor(metadata: PayloadMismatchMetadata, site: RefusalSite) {
    super(metadata, site, {
      status: 422,
      public: 'This idempotency key was used for a different request before.',
      detail: 'the key was used with another payload before',
    });
  }
}

/** Another transaction holds the row: 409. */
export class RowLockedError extends RefusalError<RowLockedMetadata> {
  constructor(metadata: RowLockedMetadata, site: RefusalSite, cause?: unknown) {
    super(metadata, site, {
      status: 409,
      public: 'This record is being changed.',
      detail: `another transaction holds the row of ${metadata.table} (waited ${Math.round(metadata.waitedMs)} ms)`,
      cause,
    });
  }
}

/**
 * The database ended the transaction because of others: 409. Nothing of it was saved. `@RetryOn` may
 * repeat the body, which begins a transaction anew.
 */
export class RowLockConflictError extends RefusalError<RowConflictMetadata> {
  constructor(metadata: RowConflictMetadata, site: RefusalSite, cause: unknown) {
    super(metadata, site, {
      status: 409,
      public: 'This record was changed meanwhile, please try again.',
      detail: `the transaction on ${metadata.table} was ended by the database (SQLSTATE ${metadata.sqlState})`,
      cause,
    });
  }
}

/** There is no row of that key: 404. */
export class RowMissingError extends RefusalError<RowMissingMetadata> {
  constructor(metadata: RowMissingMetadata, site: RefusalSite) {
    super(metadata, site, {
      status: 404,
      public: 'There is no such record.',
      detail: `there is no row of ${metadata.table} with that key`,
    });
  }
}

/** The key is blank and `onBlank` is `'fail'`: 400, or 500 when the key did not come from a request. */
export class KeyMissingError extends RefusalError<KeyMissingMetadata> {
  constructor(metadata: KeyMissingMetadata, site: RefusalSite, fromRequest: boolean) {
    super(metadata, site, {
      status: fromRequest ? 400 : 500,
      public: fromRequest ? 'A required value is missing.' : 'Internal server error',
      detail:
        metadata.policy === 'rowLock'
          ? 'the key of the row to lock is blank'
          : `the key of the ${metadata.policy} policy is blank, and onBlank is 'fail'`,
    });
  }
}

/** The key is no string, number or bigint, or is ambiguous: 400, or 500 when it did not come from a request. */
export class InvalidKeyError extends RefusalError<KeyInvalidMetadata> {
  constructor(
    metadata: KeyInvalidMetadata,
    site: RefusalSite,
    fromRequest: boolean,
    detail: string,
  ) {
    super(metadata, site, {
      status: fromRequest ? 400 : 500,
      public: fromRequest ? 'A value of the request has the wrong form.' : 'Internal server error',
      detail: `the key of the ${metadata.policy} policy: ${detail}`,
    });
  }
}

/** The store gave no answer: 503. It says nothing about the lock, the limit or the work. */
export class StoreUnavailableError extends RefusalError<StoreUnavailableMetadata> {
  constructor(metadata: StoreUnavailableMetadata, site: RefusalSite, cause: unknown) {
    super(metadata, site, {
      status: 503,
      public: 'The service is temporarily unavailable.',
      detail: `the store did not answer for ${metadata.policies.join(' and ')} (${metadata.reason})`,
      cause,
    });
  }
}

/** The application is closing: 503. */
export class ShuttingDownError extends RefusalError<ShuttingDownMetadata> {
  constructor(site: RefusalSite) {
    super({ code: 'shutting_down' }, site, {
      status: 503,
      public: 'The service is shutting down.',
      detail: 'the application is shutting down',
    });
  }
}

/** The body ended itself with `fail(reason)`: 422. The reason is public, the metadata never is. */
export class TaskFailedError extends HttpException {
  /** `metadata.code`, or `'failed'`. */
  readonly code: string;

  constructor(
    readonly reason: string,
    readonly metadata: Readonly<Record<string, unknown>> = {},
  ) {
    const code = typeof metadata['code'] === 'string' ? metadata['code'] : 'failed';
    super(publicBody(422, reason, code), 422);
    this.name = 'TaskFailedError';
    this.code = code;
    brand(this, 'task_failed');
  }
}

/** Whether `error` is a refusal of a policy, from whichever copy of the package. */
export function isRefusalError(error: unknown): error is RefusalError {
  return brandOf(error)?.startsWith('refusal:') === true;
}

/** Whether `error` is a {@link RowLockedError}, from whichever copy of the package. */
export function isRowLockedError(error: unknown): error is RowLockedError {
  return hasBrand(error, 'refusal:row_locked');
}

/** Whether `error` is a {@link TaskFailedError}, from whichever copy of the package. */
export function isTaskFailedError(error: unknown): error is TaskFailedError {
  return hasBrand(error, 'task_failed');
}

export function retryAfterOf(metadata: object): number | undefined {
  return (metadata as { retryAfter?: number }).retryAfter;
}

/** Nest's error body plus `code` and, when it is known, `retryAfter` in seconds. */
function publicBody(
  statusCode: number,
  message: string | readonly string[],
  code: string,
  retryAfter?: number,
): PublicRefusalBody {
  return {
    statusCode,
    error: STATUS_CODES[statusCode] ?? 'Error',
    message,
    code,
    ...(retryAfter !== undefined && { retryAfter }),
  };
}
