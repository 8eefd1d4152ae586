export { CmdxModule } from './cmdx.module.js';
export type { CmdxOptionsFactory } from './cmdx.module-definition.js';
export type { CmdxModuleOptions } from './cmdx.options.js';

export { CircuitBreaker } from './decorators/circuit-breaker.js';
export { IdempotentBy } from './decorators/idempotent-by.js';
export { LockWith } from './decorators/lock-with.js';
export { RateLimit } from './decorators/rate-limit.js';
export { RegisterJitter } from './decorators/register-jitter.js';
export { RegisterLimiter } from './decorators/register-limiter.js';
export { LockedRow } from './decorators/locked-row.js';
export { RetryOn } from './decorators/retry-on.js';
export { WithRowLock } from './decorators/with-row-lock.js';
export { InputSchema, OutputSchema } from './decorators/schemas.js';
export { Named } from './decorators/named.js';
export { OnTelemetry } from './decorators/on-telemetry.js';
export type { PolicyDecorator } from './decorators/guarded-method.js';
export { describePolicies } from './boot/describe-policies.js';
export type {
  MethodDescription,
  PolicyDescription,
  RowLockDescription,
} from './plan/description.js';

export { arg, input } from './keys/input.js';
export { clientIp, fromRequest, header } from './keys/request.js';
export { segment } from './keys/segment.js';
export type { SegmentPart } from './keys/segment.js';
export { perTask } from './keys/key-resolver.js';
export type {
  BindableResolver as BuiltInKey,
  KeyFunction,
  KeyResolver,
  KeyValue,
  PerTask,
} from './keys/key-resolver.js';
export { StoreKey } from './keys/store-key.js';

export { Cmdx } from './envelope/cmdx.js';
export { currentInvocation } from './envelope/current.js';
export { fail, skip } from './envelope/signals.js';
export { resultOf } from './envelope/result.js';
export type { BodyCode, BodyMetadata, Result } from './envelope/result.js';
export { withoutPolicies } from './envelope/binding.js';
export type { HeldLock, Invocation } from './invocation.js';

export type {
  CircuitBreakerOptions,
  Fingerprint,
  Gate,
  GateObject,
  IdempotencyOptions,
  KeyScope,
  LockOptions,
  OutcomeCodec,
  PolicyDefaults,
  RateLimitOptions,
  RetryGate,
  RetryOptions,
  RowLockMode,
  WithRowLockOptions,
} from './policies/options.js';
export { currentTransaction } from './row-lock/locking.js';
export type { RowId, RowKey, RowKeyFunction, RowKeyResolver } from './row-lock/row-key.js';
export { RowLocks } from './row-lock/row-locks.js';
export type { LockClause, RowLocking } from './row-lock/row-locking.js';
export type { RowTarget } from './row-lock/target.js';
export type { ErrorClass, ErrorSelection } from './policies/error-matcher.js';
export type { Backoff, BuiltInJitter, Jitter } from './policies/jitters.js';
export { OUTCOME_TABLE } from './policies/outcome-table.js';
export type { EndingKind, OutcomeRow } from './policies/outcome-table.js';
export type { Schema } from './policies/schema.js';
export type { Admission, Limiter, Quota } from './policies/limiters/limiter.js';

export type { Awaitable } from './awaitable.js';
export { Store } from './store/store.js';
export { claimText, parseClaim } from './store/claim.js';
export type { ClaimRecord } from './store/claim.js';
export { circuitText, parseCircuit } from './store/circuit.js';
export type { CircuitRecord, CircuitState } from './store/circuit.js';
export { CircuitBreakers } from './store/circuit-breakers.js';
export type { CircuitBreakerReport } from './store/circuit-breakers.js';
export { IdempotencyRecords } from './store/idempotency-records.js';
export type { IdempotencyRecord } from './store/idempotency-records.js';
export type {
  CircuitReply,
  CircuitStep,
  ClaimReply,
  ClaimStep,
  CompleteReply,
  CompleteStep,
  EnterReply,
  EnterStep,
  FixedWindowReply,
  FixedWindowStep,
  Hold,
  KeyReport,
  LeakyBucketReply,
  LeakyBucketStep,
  LeaseReply,
  LeaseStep,
  LeaveReply,
  LeaveStep,
  OutcomeReply,
  OutcomeStep,
  ReleaseReply,
  ReleaseStep,
  UnclaimReply,
  UnclaimStep,
  UnpermitReply,
  UnpermitStep,
} from './store/store.js';
export { MemoryStore } from './store/memory/memory.store.js';
export type { MemoryStoreOptions } from './store/memory/memory.store.js';

export { TELEMETRY_EVENTS } from './telemetry/events.js';
export { Telemetry } from './telemetry/telemetry.js';
export type { TelemetryListener } from './telemetry/telemetry.js';
export { LoggerTelemetry } from './telemetry/logger.telemetry.js';
export type { LoggerTelemetryOptions } from './telemetry/logger.telemetry.js';
export type {
  TelemetryEvent,
  TelemetryEventName,
  TelemetryPayloads,
  TelemetrySubscriber,
} from './telemetry/events.js';

export {
  AbandonedError,
  CircuitOpenError,
  DuplicateError,
  InProgressError,
  InputInvalidError,
  InvalidKeyError,
  isRefusalError,
  isTaskFailedError,
  KeyMissingError,
  LockBusyError,
  OutputInvalidError,
  PayloadMismatchError,
  RateLimitedError,
  RefusalError,
  RowLockConflictError,
  RowLockedError,
  RowMissingError,
  ShuttingDownError,
  StoreUnavailableError,
  TaskFailedError,
} from './errors/refusals.js';
export type {
  AbandonedMetadata,
  BusyMetadata,
  CircuitOpenMetadata,
  DuplicateMetadata,
  InProgressMetadata,
  InputInvalidMetadata,
  KeyInvalidMetadata,
  KeyMissingMetadata,
  OutputInvalidMetadata,
  PayloadMismatchMetadata,
  PolicyName,
  PublicRefusalBody,
  RateLimitedMetadata,
  RefusalCode,
  RefusalMetadata,
  RowConflictMetadata,
  RowLockedMetadata,
  RowMissingMetadata,
  SchemaIssue,
  ShuttingDownMetadata,
  StoreUnavailableMetadata,
} from './errors/refusals.js';
export {
  DefinitionError,
  isDefinitionError,
  isNotManagedError,
  LimiterError,
  NotManagedError,
} from './errors/definition.error.js';
export { isLeaseLostError, LeaseLostError } from './errors/lease-lost.error.js';
export { isNoTransactionError, NoTransactionError } from './errors/no-transaction.error.js';
export {
  isTransactionAbortedError,
  TransactionAbortedError,
} from './errors/transaction-aborted.error.js';
export {
  isTransactionInDoubtError,
  TransactionInDoubtError,
} from './errors/transaction-in-doubt.error.js';
export { isStoreError, StoreError } from './errors/store.error.js';
export type { StoreErrorReason } from './errors/store.error.js';

export { SystemClock } from './clock/clock.js';
export type { Clock } from './clock/clock.js';
export { Deadline } from './clock/deadline.js';
export type { Duration } from './clock/duration.js';
