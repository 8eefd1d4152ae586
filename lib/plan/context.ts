import type { PlannedRetry, PlannedRing, PlannedRowLock } from '../envelope/plan.js';
import type { CompiledKey, ResolverLookup } from '../keys/compiled-key.js';
import type { CompiledFingerprint } from '../keys/fingerprint.js';
import type { Jitter } from '../policies/jitters.js';
import type { Limiter } from '../policies/limiters/limiter.js';
import { type Declarable, DECORATOR_NAMES } from '../policies/option-rules.js';
import type {
  CommonOptions,
  PolicyDefaults,
  RetryOptions,
  WithRowLockOptions,
} from '../policies/options.js';
import type { Policy } from '../policies/policy.js';
import type { RowTarget } from '../row-lock/target.js';
import type { MethodDeclaration } from './declaration.js';
import type { Merged } from './inheritance.js';

/** What a name may mean. */
export interface Named<T> {
  get(name: string): T | undefined;
  keys(): Iterable<string>;
}

/** What a name means to those who know it, the first of them first. */
export function meaningOf<T>(name: string, named: readonly Named<T>[]): T | undefined {
  for (const each of named) {
    const meaning = each.get(name);
    if (meaning !== undefined) return meaning;
  }
  return undefined;
}

/** All names that mean something, for an error. */
export function namesIn(builtIn: readonly string[], named: readonly Named<unknown>[]): string {
  return [...builtIn, ...named.flatMap((each) => [...each.keys()])].join(', ');
}

/** What an application adds to what is written on its classes. */
export interface PlanContext {
  readonly defaults: PolicyDefaults;
  readonly limiters: Named<Limiter>;
  readonly jitters: Named<Jitter>;
  readonly lookup: ResolverLookup;
  /**
   * Checks whose rows the application can lock; `undefined` where it has no database.
   *
   * @throws DefinitionError for a target that its database library does not know
   */
  readonly checkTarget: ((target: RowTarget, site: string) => void) | undefined;
}

/** All that a ring is made of. */
export interface RingSource {
  readonly merged: Merged;
  readonly declaration: MethodDeclaration;
  readonly context: PlanContext;
  /** Names class, method and decorator in errors. */
  readonly site: string;
}

/** What is a policy's own about its ring. */
export interface RingParts {
  readonly policy: Policy;
  readonly options: CompiledRing['options'] &
    Pick<Required<CommonOptions>, 'namespace' | 'onBlank'>;
  readonly key: CompiledKey | undefined;
  /** How the key was written, where the key itself does not say so: it is part of the base. */
  readonly keyText?: string;
  readonly fingerprint?: CompiledFingerprint | undefined;
}

/** A ring together with what it was made of. */
export interface CompiledRing extends PlannedRing {
  /** How the key was written; `'perTask'` for none. */
  readonly keyText: string;
  readonly options: Readonly<CommonOptions & Record<string, unknown>>;
}

/** A retry together with what it was made of. */
export interface CompiledRetry extends PlannedRetry {
  readonly options: Readonly<RetryOptions & Required<Pick<RetryOptions, 'limit' | 'delay'>>>;
}

/** A row lock together with what it was made of. */
export interface CompiledRowLock extends PlannedRowLock {
  readonly options: Readonly<WithRowLockOptions>;
}

/** How a decorator of a method is named in messages: `Accounts.reconcile: @LockWith`. */
export function siteOf({ task }: MethodDeclaration, name: Declarable): string {
  return `${task}: ${DECORATOR_NAMES[name]}`;
}

/** The options that say something: an `undefined` hides no default. */
export function defined<T extends object>(options: T | undefined): Partial<T> {
  return Object.fromEntries(
    Object.entries(options ?? {}).filter(([, value]) => value !== undefined),
  ) as Partial<T>;
}
