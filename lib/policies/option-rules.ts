import { toMilliseconds } from '../clock/duration.js';
import { DefinitionError, show } from '../errors/definition.error.js';
import { POLICY_NAMES } from '../errors/refusals.js';
import { isErrorSelection } from './error-matcher.js';
import { ROW_LOCK_MODES } from './options.js';

/** Checks one option as it was written. `where` names class, method, decorator and option. */
type OptionRule = (value: unknown, where: string) => void;

type Rules = Readonly<Record<string, OptionRule>>;

/** All that a decorator of ours can declare: the rings, and what stands inside them. */
export const DECLARABLES = [
  ...POLICY_NAMES,
  'retry',
  'rowLock',
  'inputSchema',
  'outputSchema',
] as const;

export type Declarable = (typeof DECLARABLES)[number];

/** How each decorator is written. */
export const DECORATOR_NAMES: Readonly<Record<Declarable, string>> = {
  rateLimit: '@RateLimit',
  circuitBreaker: '@CircuitBreaker',
  lock: '@LockWith',
  idempotency: '@IdempotentBy',
  retry: '@RetryOn',
  rowLock: '@WithRowLock',
  inputSchema: '@InputSchema',
  outputSchema: '@OutputSchema',
};

const STREAM_RULE = { stream: flag };
const COMMON_RULES = {
  if: gate,
  unless: gate,
  namespace: text,
  name: sharedName,
  onBlank: oneOf('bypass', 'fail'),
  onStoreError: oneOf('fail', 'run'),
};

const ROW_LOCKING: Rules = {
  mode: oneOf(...ROW_LOCK_MODES),
  wait: (value, where) => toMilliseconds(value, where, true),
  onMissing: oneOf('fail', 'run'),
  lockFree: flag,
};

const RULES: Readonly<Record<Declarable, Rules>> = {
  lock: {
    ...COMMON_RULES,
    ...STREAM_RULE,
    ttl: toMilliseconds,
    wait: (value, where) => {
      if (value !== null && value !== false) toMilliseconds(value, where, true);
    },
    onBusy: oneOf('fail', 'skip'),
  },
  rateLimit: {
    ...COMMON_RULES,
    ...STREAM_RULE,
    max: wholeNumber,
    per: toMilliseconds,
    limiter: limiter,
    cost: positiveNumber,
    onLimit: oneOf('fail', 'skip'),
  },
  idempotency: {
    ...COMMON_RULES,
    ttl: toMilliseconds,
    lease: toMilliseconds,
    wait: toMilliseconds,
    onDuplicate: oneOf('replay', 'skip', 'fail'),
    onInProgress: oneOf('fail', 'skip', 'wait'),
    onAbandoned: oneOf('fail', 'rerun'),
    fingerprint,
    scope,
    codec,
    returns: aClass,
    maxBytes: wholeNumber,
  },
  circuitBreaker: {
    ...COMMON_RULES,
    ...STREAM_RULE,
    failureRate: share,
    minimumCalls: countingNumber,
    window: breakerWindow,
    openFor: toMilliseconds,
    maxOpenFor: toMilliseconds,
    permits: countingNumber,
    probeTimeout: toMilliseconds,
    onOpen: oneOf('fail', 'skip'),
    ignore: errors,
    failOn: errors,
  },
  retry: {
    limit: wholeNumber,
    delay: (value, where) => toMilliseconds(value, where, true),
    jitter,
    maxDelay: toMilliseconds,
    if: gate,
    unless: gate,
  },
  rowLock: {
    ...ROW_LOCKING,
    onBusy: oneOf('fail', 'skip'),
    if: gate,
    unless: gate,
  },
  inputSchema: {},
  outputSchema: {},
};

/**
 * Checks options where they are written: every name known, every value of its kind.
 *
 * @param site who wrote them, for example `Accounts.reconcile: @LockWith`
 * @throws DefinitionError "expected X, got Y"
 */
export function checkOptions(policy: Declarable, options: object, site: string): void {
  check(RULES[policy], options, site);
}

/** The same, of what `RowLocks` is told. */
export function checkRowLocking(options: object, site: string): void {
  check(ROW_LOCKING, options, site);
}

function check(rules: Rules, options: object, site: string): void {
  for (const [name, value] of Object.entries(options)) {
    const rule = Object.hasOwn(rules, name) ? rules[name] : undefined;
    if (!rule) {
      throw new DefinitionError(
        `${site}: unknown option "${name}"; expected one of ${Object.keys(rules).join(', ')}`,
      );
    }
    if (value !== undefined) rule(value, `${site} option "${name}"`);
  }
}

function expected(where: string, what: string, value: unknown): DefinitionError {
  return new DefinitionError(`${where}: expected ${what}, got ${show(value)}`);
}

function oneOf(...allowed: readonly string[]): OptionRule {
  return (value, where) => {
    if (!allowed.includes(value as string)) {
      throw expected(where, allowed.map((each) => `'${each}'`).join(' or '), value);
    }
  };
}

function gate(value: unknown, where: string): void {
  const sound =
    typeof value === 'boolean' || (typeof value === 'string' && value !== '') || isCallable(value);
  if (!sound) {
    throw expected(
      where,
      'a boolean, the name of a method, a function or an object with call()',
      value,
    );
  }
}

/** A function, or an object with `call(invocation)`. */
function isCallable(value: unknown): boolean {
  if (typeof value === 'function') return true;
  return typeof (value as { call?: unknown } | null | undefined)?.call === 'function';
}

function fingerprint(value: unknown, where: string): void {
  if (value !== false && value !== 'request' && !isCallable(value)) {
    throw expected(where, "'request', false, a function or an object with call()", value);
  }
}

function scope(value: unknown, where: string): void {
  if (value !== 'shared' && !isCallable(value)) {
    throw expected(where, "'shared' or a key resolver such as fromRequest(...)", value);
  }
}

function codec(value: unknown, where: string): void {
  const { encode, decode } = (value ?? {}) as { encode?: unknown; decode?: unknown };
  if (typeof encode !== 'function' || typeof decode !== 'function') {
    throw expected(where, 'an object with encode() and decode()', value);
  }
}

function aClass(value: unknown, where: string): void {
  const { prototype } = (value ?? {}) as { prototype?: unknown };
  if (typeof value !== 'function' || typeof prototype !== 'object') {
    throw expected(where, 'a class', value);
  }
}

function text(value: unknown, where: string): void {
  if (typeof value !== 'string' || value === '') throw expected(where, 'a non-empty string', value);
}

function sharedName(value: unknown, where: string): void {
  if (typeof value !== 'string' || value === '' || value.includes(':')) {
    throw expected(where, 'a non-empty string without a ":"', value);
  }
}

function flag(value: unknown, where: string): void {
  if (typeof value !== 'boolean') throw expected(where, 'true or false', value);
}

function wholeNumber(value: unknown, where: string): void {
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    throw expected(where, 'a whole number from 0', value);
  }
}

function countingNumber(value: unknown, where: string): void {
  if (!Number.isSafeInteger(value) || (value as number) < 1) {
    throw expected(where, 'a whole number from 1', value);
  }
}

function share(value: unknown, where: string): void {
  if (typeof value !== 'number' || !(value > 0 && value <= 1)) {
    throw expected(where, 'a number above 0 and at most 1', value);
  }
}

/** A breaker counts in ten buckets, and none is shorter than a millisecond. */
function breakerWindow(value: unknown, where: string): void {
  if (toMilliseconds(value, where) < 10) throw expected(where, '10 milliseconds or more', value);
}

function errors(value: unknown, where: string): void {
  if (!isErrorSelection(value)) {
    throw expected(where, 'an error class, a predicate, or a list of them', value);
  }
}

function positiveNumber(value: unknown, where: string): void {
  if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0) {
    throw expected(where, 'a number above 0', value);
  }
}

function limiter(value: unknown, where: string): void {
  nameOrFunction('limiter', value, where);
}

function jitter(value: unknown, where: string): void {
  nameOrFunction('jitter', value, where);
}

function nameOrFunction(what: string, value: unknown, where: string): void {
  if (typeof value !== 'function' && (typeof value !== 'string' || value === '')) {
    throw expected(where, `the name of a ${what} or a function`, value);
  }
}
