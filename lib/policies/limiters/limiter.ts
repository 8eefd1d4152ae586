import { LimiterError } from '../../errors/definition.error.js';
import type { Invocation } from '../../invocation.js';
import type { Store } from '../../store/store.js';
import type { RateLimitOptions } from '../options.js';

/** The question a limiter is asked. Frozen. */
export interface Quota {
  readonly task: string;
  readonly invocation: Invocation;
  /** The base key; append a suffix for more state. */
  readonly storeKey: string;
  readonly max: number;
  /** Seconds. */
  readonly per: number;
  readonly cost: number;
  /** The name of the limiter. */
  readonly limiter: string;
  /** The declaration as written. */
  readonly options: Readonly<RateLimitOptions>;
  readonly store: Store;
}

/** A limiter's answer. */
export interface Admission {
  readonly admitted: boolean;
  /** A counter, for messages and metadata. */
  readonly count?: number | undefined;
  /** A fill, for messages and metadata. */
  readonly level?: number | undefined;
  /** Seconds after which another try may be admitted. */
  readonly retryAfter?: number | undefined;
  /** The name recorded in telemetry and metadata. */
  readonly limiter?: string | undefined;
}

/** A strategy of one's own. `this` is the instance whose method is called. */
export type Limiter = (this: object, quota: Quota) => Admission | Promise<Admission>;

export const BUILT_IN_LIMITERS = ['fixed_window', 'leaky_bucket'] as const;
export type BuiltInLimiter = (typeof BUILT_IN_LIMITERS)[number];

export function isBuiltInLimiter(name: unknown): name is BuiltInLimiter {
  return BUILT_IN_LIMITERS.includes(name as BuiltInLimiter);
}

/** @throws LimiterError when a custom limiter answered anything but an {@link Admission} */
export function assertAdmission(answer: unknown, limiter: string, task: string): Admission {
  const admission = answer as Partial<Admission> | null | undefined;
  const sound =
    typeof admission === 'object' &&
    admission !== null &&
    typeof admission.admitted === 'boolean' &&
    isOptional(admission.count, 'number') &&
    isOptional(admission.level, 'number') &&
    isOptional(admission.retryAfter, 'number') &&
    isOptional(admission.limiter, 'string');
  if (!sound) throw new LimiterError(limiter, task, answer);
  return admission as Admission;
}

function isOptional(value: unknown, type: 'number' | 'string'): boolean {
  return value === undefined || value === null || typeof value === type;
}
