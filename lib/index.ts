export { CmdxModule } from './cmdx.module.js';
export type { CmdxOptionsFactory } from './cmdx.module-definition.js';
export type { CmdxModuleOptions } from './cmdx.options.js';

export { IdempotentBy } from './decorators/idempotent-by.js';
export { LockWith } from './decorators/lock-with.js';
export { RateLimit } from './decorators/rate-limit.js';
export { RegisterLimiter } from './decorators/register-limiter.js';
export { Named } from './decorators/named.js';
export { OnTelemetry } from './decorators/on-telemetry.js';
export type { PolicyDecorator } from './decorators/guarded-method.js';
export { describePolicies } from './boot/describe-policies.js';
export type { MethodDescription, PolicyDescription } from './plan/description.js';

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
  Fingerprint,
  Gate,
  GateObject,
  IdempotencyOptions,
  KeyScope,
  LockOptions,
  OutcomeCodec,
  PolicyDefaults,
  RateLimitOptions,
} from './policies/options.js';
export type { Admission, Limiter, Quota } from './policies/limiters/limiter.js';

export type { Awaitable } from './awaitable.js';
export { Store } from './store/store.js';
export { claimText, parseClaim } from './store/claim.js';
export type { ClaimRecord } from './store/claim.js';
export { IdempotencyRecords } from './store/idempotency-records.js';
export type { IdempotencyRecord } from './store/idempotency-records.js';
export type {
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
  ReleaseReply,
  ReleaseStep,
  UnclaimReply,
  UnclaimStep,
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
  DuplicateError,
  InProgressError,
  InvalidKeyError,
  isRefusalError,
  isTaskFailedError,
  KeyMissingError,
  LockBusyError,
  PayloadMismatchError,
  RateLimitedError,
  RefusalError,
  ShuttingDownError,
  StoreUnavailableError,
  TaskFailedError,
} from './errors/refusals.js';
export type {
  AbandonedMetadata,
  BusyMetadata,
  DuplicateMetadata,
  InProgressMetadata,
  KeyInvalidMetadata,
  KeyMissingMetadata,
  PayloadMismatchMetadata,
  PolicyName,
  PublicRefusalBody,
  RateLimitedMetadata,
  RefusalCode,
  RefusalMetadata,
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
export { isStoreError, StoreError } from './errors/store.error.js';
export type { StoreErrorReason } from './errors/store.error.js';

export { SystemClock } from './clock/clock.js';
export type { Clock } from './clock/clock.js';
export { Deadline } from './clock/deadline.js';
export type { Duration } from './clock/duration.js';
