import type { Declarable } from '../policies/option-rules.js';
import type { MethodShape } from '../keys/key-resolver.js';
import type { Limiter } from '../policies/limiters/limiter.js';
import type { Jitter } from '../policies/jitters.js';
import type {
  CircuitBreakerOptions,
  IdempotencyOptions,
  LockOptions,
  RateLimitOptions,
  RetryOptions,
  WithRowLockOptions,
} from '../policies/options.js';

/** Options as written, whichever policy's. */
export type WrittenOptions = Readonly<
  LockOptions &
    RateLimitOptions &
    IdempotencyOptions &
    CircuitBreakerOptions &
    WithRowLockOptions &
    Omit<RetryOptions, 'if' | 'unless'>
>;

/** One decorator as it was written. */
export type PolicyRecord =
  /** `@Policy(false)` */
  | { readonly form: 'off' }
  /** `@Policy()` */
  | { readonly form: 'inherit' }
  /** `@Policy(subject)`, `@Policy(options)`, `@Policy(subject, options)`: a key, errors, a schema, or whose row */
  | { readonly form: 'set'; readonly subject?: unknown; readonly options: WrittenOptions };

/** All that was written about one method of one class, its bases included: what a plan is made of. */
export interface MethodDeclaration {
  readonly className: string;
  readonly method: PropertyKey;
  /** `ClassName.methodName`. */
  readonly task: string;
  /** The outermost wrapper's rank. */
  readonly rank: number;
  readonly shape: MethodShape;
  /** The decorators of each policy that apply to the method, in the order in which they are merged. */
  readonly records: { readonly [P in Declarable]?: readonly PolicyRecord[] };
  /** The limiters registered on the class. */
  readonly limiters: ReadonlyMap<string, Limiter>;
  /** The jitters registered on the class. */
  readonly jitters: ReadonlyMap<string, Jitter>;
  /** The position of the parameter that is given the locked row, if there is one. */
  readonly lockedRowAt: number | undefined;
  readonly returnsObservable: boolean;
  /** Whether Nest itself calls the method. */
  readonly handler: boolean;
  /** Whether the handler answers with a stream of events: `@Sse()`. */
  readonly streamsEvents: boolean;
  /** Whether the handler writes its answer itself, with `@Res()` or `@Next()`. */
  readonly answersByItself: boolean;
  /** The decorator with which a handler's answer cannot say that it was skipped, if it has one. */
  readonly fixedAnswer: string | undefined;
  /** The method of that name that instances have. */
  methodNamed(name: string): ((...args: never[]) => unknown) | undefined;
}
