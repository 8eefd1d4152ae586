import type {
  AbandonedMetadata,
  BusyMetadata,
  CircuitOpenMetadata,
  DuplicateMetadata,
  InProgressMetadata,
  PayloadMismatchMetadata,
  PolicyName,
  RateLimitedMetadata,
} from '../errors/refusals.js';

/** What the rate limit granted. */
export interface RateLimitAdmittedPayload {
  readonly rateLimitKey: string;
  readonly limiter: string;
  readonly max: number;
  /** Seconds. */
  readonly per: number;
  readonly count?: number;
  readonly level?: number;
  /** Seconds. */
  readonly retryAfter?: number;
}

export interface TaskRetriedPayload {
  /** Which repetition begins now: 1, 2, ... */
  readonly attempt: number;
  /** Seconds of sleep before it. */
  readonly delay: number;
  /** What the last attempt threw. */
  readonly error: unknown;
}

export interface LockAcquiredPayload {
  readonly lockKey: string;
}

/** A change of a circuit breaker's state: told once, by the call that made it. */
export interface CircuitPayload {
  readonly circuitKey: string;
  readonly epoch: number;
  /** When opened: the share of failures, between 0 and 1. */
  readonly failureRate?: number;
  /** When opened: seconds until a probe may be let in. */
  readonly retryAfter?: number;
}

/** A claim, or what became of one whose key has a new owner. */
export interface IdempotencyPayload {
  readonly idempotencyKey: string;
  /** 1, and one more each time an abandoned run was taken over. */
  readonly run: number;
}

/** Rows are locked, before the body begins. */
export interface RowLockedPayload {
  /** Schema and table. */
  readonly table: string;
  /** Milliseconds that it took to get the lock. */
  readonly waitedMs: number;
}

export interface PolicyBypassedPayload {
  readonly policy: PolicyName;
  readonly reason: 'blank' | 'store_error';
}

export interface StoreErrorPayload {
  readonly operation: 'enter' | 'leave' | 'limiter';
  readonly policies: readonly PolicyName[];
  readonly error: unknown;
}

/** The payload of each event. `result` is the `Result` of the finished run. */
export interface TelemetryPayloads {
  readonly task_started: Readonly<Record<never, never>>;
  readonly task_executed: { readonly result: unknown };
  readonly task_retried: TaskRetriedPayload;
  readonly rate_limit_admitted: RateLimitAdmittedPayload;
  readonly rate_limit_exceeded: RateLimitedMetadata;
  readonly circuit_opened: CircuitPayload;
  readonly circuit_half_opened: CircuitPayload;
  readonly circuit_closed: CircuitPayload;
  readonly circuit_rejected: CircuitOpenMetadata;
  readonly lock_acquired: LockAcquiredPayload;
  readonly lock_busy: BusyMetadata;
  readonly idempotency_claimed: IdempotencyPayload;
  readonly idempotency_duplicate: DuplicateMetadata;
  readonly idempotency_in_progress: InProgressMetadata;
  readonly idempotency_mismatch: PayloadMismatchMetadata;
  readonly idempotency_abandoned: AbandonedMetadata;
  /** A run ended after another had taken its key over: nothing of it was recorded. */
  readonly idempotency_stale: IdempotencyPayload;
  readonly row_locked: RowLockedPayload;
  readonly policy_bypassed: PolicyBypassedPayload;
  readonly store_error: StoreErrorPayload;
}

export type TelemetryEventName = keyof TelemetryPayloads;

/** Every event there is. */
export const TELEMETRY_EVENTS: readonly TelemetryEventName[] = Object.freeze([
  'task_started',
  'task_executed',
  'task_retried',
  'rate_limit_admitted',
  'rate_limit_exceeded',
  'circuit_opened',
  'circuit_half_opened',
  'circuit_closed',
  'circuit_rejected',
  'lock_acquired',
  'lock_busy',
  'idempotency_claimed',
  'idempotency_duplicate',
  'idempotency_in_progress',
  'idempotency_mismatch',
  'idempotency_abandoned',
  'idempotency_stale',
  'row_locked',
  'policy_bypassed',
  'store_error',
]);

/** Who an event speaks of. */
export interface TelemetrySource {
  readonly cid: string;
  readonly xid: string | undefined;
  readonly tid: string;
  readonly root: boolean;
  readonly task: string;
}

export interface TelemetryEvent<
  N extends TelemetryEventName = TelemetryEventName,
> extends TelemetrySource {
  readonly name: N;
  readonly timestamp: Date;
  readonly payload: TelemetryPayloads[N];
}

export type TelemetrySubscriber<N extends TelemetryEventName = TelemetryEventName> = (
  event: TelemetryEvent<N>,
) => unknown;
