import type { ExecutionContext } from '@nestjs/common';
import { type Clock, SystemClock } from './clock/clock.js';
import { type Duration, toMilliseconds } from './clock/duration.js';
import { checkJitter } from './decorators/register-jitter.js';
import { checkLimiter } from './decorators/register-limiter.js';
import { DefinitionError, show } from './errors/definition.error.js';
import { POLICY_NAMES } from './errors/refusals.js';
import type { Jitter } from './policies/jitters.js';
import type { Limiter } from './policies/limiters/limiter.js';
import { suspiciousDurations } from './plan/durations.js';
import { checkOptions } from './policies/option-rules.js';
import type { PolicyDefaults } from './policies/options.js';
import type { Transactions } from './row-lock/transactions.js';
import { Store } from './store/store.js';
import type { TelemetryListener } from './telemetry/telemetry.js';

/** What `CmdxModule.forRoot()` is told. */
export interface CmdxModuleOptions {
  /** Where the state of the policies lives. Default: `new MemoryStore()`, which coordinates one process. */
  readonly store?: Store;
  /** Who hears the events, for example `[new LoggerTelemetry()]`. */
  readonly telemetry?: readonly TelemetryListener[];
  /** Limiters by name, for `@RateLimit({ limiter: name })`. */
  readonly limiters?: Readonly<Record<string, Limiter>>;
  /** Jitters by name, for `@RetryOn(errors, { jitter: name })`. */
  readonly jitters?: Readonly<Record<string, Jitter>>;
  /** Where rows are locked: `new PgTransactions({ pool })` or another adapter of `nestjs-cmdx/row-lock`. */
  readonly rowLock?: Transactions;
  /** Fill in options that a decorator leaves out. They never add a policy. */
  readonly defaults?: PolicyDefaults;
  /** The external id of a chain of calls, asked once per chain. */
  readonly correlationId?: (context?: ExecutionContext) => string | undefined;
  /** How long a store call may take. Default 1 s, always in real time. */
  readonly storeTimeout?: Duration;
  /** How long running bodies may take to end when the application closes. Default 10 s, in real time. */
  readonly shutdownTimeout?: Duration;
  /** The time that stores and waits live by. Default: the system's monotonic clock. */
  readonly clock?: Clock;
}

/** The options after validation. */
export interface ResolvedOptions {
  readonly store: Store | undefined;
  readonly telemetry: readonly TelemetryListener[];
  readonly limiters: ReadonlyMap<string, Limiter>;
  readonly jitters: ReadonlyMap<string, Jitter>;
  readonly rowLock: Transactions | undefined;
  readonly defaults: PolicyDefaults;
  readonly correlationId: CmdxModuleOptions['correlationId'];
  readonly storeTimeoutMs: number;
  readonly shutdownTimeoutMs: number;
  readonly clock: Clock;
  /** What looks like milliseconds written where seconds are read. */
  readonly warnings: readonly string[];
}

const SITE = 'CmdxModule.forRoot()';
const OPTION_NAMES = [
  'store',
  'telemetry',
  'limiters',
  'jitters',
  'rowLock',
  'defaults',
  'correlationId',
  'storeTimeout',
  'shutdownTimeout',
  'clock',
] as const satisfies readonly (keyof CmdxModuleOptions)[];
/** Whose options `defaults` may fill in. */
const DEFAULTED = [...POLICY_NAMES, 'retry', 'rowLock'] as const;
/** What `defaults` may not fill in: it would share keys, or change what methods return, unseen. */
const NOT_A_DEFAULT: ReadonlySet<string> = new Set(['name', 'stream', 'returns']);
/** What a default may not be of a retry: a gate is asked about what one method's body throws. */
const RETRY_GATES: ReadonlySet<string> = new Set(['if', 'unless']);
const NEVER_SKIP: ReadonlySet<string> = new Set([
  'onBusy',
  'onLimit',
  'onOpen',
  'onDuplicate',
  'onInProgress',
]);

/** @throws DefinitionError "expected X, got Y" for anything that is no option or has the wrong kind */
export function resolveOptions(options: CmdxModuleOptions): ResolvedOptions {
  assertKnown(options, OPTION_NAMES, SITE);
  assertKind(options.store, isStore, 'store', 'a Store');
  assertKind(options.rowLock, isTransactions, 'rowLock', 'one of the row lock adapters');
  assertKind(options.clock, isClock, 'clock', 'a Clock { now(), sleep() }');
  assertKind(options.correlationId, isFunction, 'correlationId', 'a function');
  return {
    store: options.store,
    telemetry: listeners(options.telemetry),
    limiters: registered(options.limiters, checkLimiter, 'limiters'),
    jitters: registered(options.jitters, checkJitter, 'jitters'),
    rowLock: options.rowLock,
    defaults: defaults(options.defaults),
    correlationId: options.correlationId,
    storeTimeoutMs: toMilliseconds(options.storeTimeout ?? 1, `${SITE} option "storeTimeout"`),
    shutdownTimeoutMs: toMilliseconds(
      options.shutdownTimeout ?? 10,
      `${SITE} option "shutdownTimeout"`,
      true,
    ),
    clock: options.clock ?? new SystemClock(),
    warnings: [
      ...suspiciousDurations(options, SITE),
      ...DEFAULTED.flatMap((policy) =>
        suspiciousDurations(options.defaults?.[policy] ?? {}, defaultsSite(policy)),
      ),
    ],
  };
}

function listeners(value: CmdxModuleOptions['telemetry']): readonly TelemetryListener[] {
  const list: readonly unknown[] = value ?? [];
  if (!Array.isArray(list) || !list.every(isListener)) {
    throw new DefinitionError(
      `${SITE} option "telemetry": expected a list of listeners such as [new LoggerTelemetry()], got ${show(value)}`,
    );
  }
  return list;
}

function registered<T>(
  value: Readonly<Record<string, T>> | undefined,
  check: (name: unknown, entry: unknown, site: string) => void,
  option: string,
): ReadonlyMap<string, T> {
  const entries = Object.entries(value ?? {});
  for (const [name, entry] of entries) check(name, entry, `${SITE} option "${option}"`);
  return new Map(entries);
}

function defaults(value: PolicyDefaults = {}): PolicyDefaults {
  assertKnown(value, DEFAULTED, `${SITE} option "defaults"`);
  for (const policy of DEFAULTED) {
    const options: Readonly<Record<string, unknown>> = value[policy] ?? {};
    const site = defaultsSite(policy);
    assertObject(options, site);
    checkOptions(policy, options, site);
    for (const [name, setting] of Object.entries(options)) {
      if (policy === 'retry' && RETRY_GATES.has(name)) {
        throw new DefinitionError(
          `${site}: "${name}" must be written on the method, because it is asked about what that throws`,
        );
      }
      if (NOT_A_DEFAULT.has(name) || (NEVER_SKIP.has(name) && setting === 'skip')) {
        throw new DefinitionError(
          `${site}: "${name}: ${String(setting)}" must be written on the method, because it changes what the method returns or shares`,
        );
      }
    }
  }
  return value;
}

function defaultsSite(policy: string): string {
  return `${SITE} option "defaults.${policy}"`;
}

function assertKnown(options: object, known: readonly string[], site: string): void {
  assertObject(options, site);
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue;
    throw new DefinitionError(
      `${site}: unknown option "${name}"; expected one of ${known.join(', ')}`,
    );
  }
}

function assertObject(options: unknown, site: string): void {
  if (typeof options === 'object' && options !== null) return;
  throw new DefinitionError(`${site}: expected options, got ${show(options)}`);
}

function assertKind(
  value: unknown,
  isKind: (value: unknown) => boolean,
  name: string,
  expected: string,
): void {
  if (value === undefined || isKind(value)) return;
  throw new DefinitionError(`${SITE} option "${name}": expected ${expected}, got ${show(value)}`);
}

function isFunction(value: unknown): boolean {
  return typeof value === 'function';
}

function isStore(value: unknown): boolean {
  return value instanceof Store;
}

function isTransactions(value: unknown): boolean {
  const { run, current, query } = (value ?? {}) as Partial<Transactions>;
  return [run, current, query].every(isFunction);
}

function isClock(value: unknown): boolean {
  const clock = value as Partial<Clock> | null;
  return typeof clock?.now === 'function' && typeof clock.sleep === 'function';
}

function isListener(value: unknown): value is TelemetryListener {
  return typeof (value as Partial<TelemetryListener> | null)?.listen === 'function';
}
