import { toMilliseconds } from '../../clock/duration.js';
import { DefinitionError, show } from '../../errors/definition.error.js';
import { compileKey } from '../../keys/compiled-key.js';
import type { KeySpec } from '../../keys/key-resolver.js';
import { CircuitBreakerPolicy } from '../../policies/circuit-breaker.js';
import { matcherOf } from '../../policies/error-matcher.js';
import type { CircuitBreakerOptions } from '../../policies/options.js';
import { defined, type RingParts, type RingSource } from '../context.js';
import type { PolicyRecord } from '../declaration.js';

/** What an option is where nobody says otherwise. */
const CIRCUIT_BREAKER_DEFAULTS = {
  failureRate: 0.5,
  minimumCalls: 10,
  window: 60,
  openFor: 30,
  maxOpenFor: 600,
  permits: 1,
  probeTimeout: 60,
  namespace: 'cmdx:cb',
  onOpen: 'fail',
  onBlank: 'bypass',
  onStoreError: 'fail',
} as const satisfies CircuitBreakerOptions;

/**
 * A breaker's literal key is the name of what it protects, shared by all methods that call it.
 *
 * @throws DefinitionError for a name that is empty or has a `:`, or for two of them in one place
 */
export function circuitBreakerParts({ merged, declaration, context, site }: RingSource): RingParts {
  const { subject } = merged;
  const literal = typeof subject === 'string';
  const lastName = lastNameOf(declaration.records.circuitBreaker ?? [], site);
  if (literal && (subject === '' || subject.includes(':'))) {
    throw new DefinitionError(
      `${site}: expected a non-empty shared name without a ":", got ${show(subject)}`,
    );
  }
  const options: Effective = {
    ...CIRCUIT_BREAKER_DEFAULTS,
    ...defined(context.defaults.circuitBreaker),
    ...merged.options,
    ...(literal && lastName !== undefined && { name: lastName }),
  };
  const spec = literal ? undefined : (subject as KeySpec | undefined);
  return {
    policy: circuitBreakerPolicy(options, site),
    options: { ...options },
    key: compileKey(spec, declaration.shape, context.lookup),
    ...(literal && { keyText: JSON.stringify(options.name) }),
  };
}

/**
 * The shared name that was written last, be it as a key or as the option: each replaces the other.
 *
 * @throws DefinitionError when one decorator has two
 */
function lastNameOf(records: readonly PolicyRecord[], site: string): string | undefined {
  let last: string | undefined;
  for (const record of records) {
    if (record.form !== 'set') continue;
    const { subject, options } = record;
    const literal = typeof subject === 'string' ? subject : undefined;
    if (literal !== undefined && (options.name ?? literal) !== literal) {
      throw new DefinitionError(
        `${site}: expected one shared name, got ${show(literal)} and the option "name", ${show(options.name)}`,
      );
    }
    last = literal ?? options.name ?? last;
  }
  return last;
}

type Effective = CircuitBreakerOptions &
  Required<Pick<CircuitBreakerOptions, keyof typeof CIRCUIT_BREAKER_DEFAULTS>>;

function circuitBreakerPolicy(options: Effective, site: string): CircuitBreakerPolicy {
  const ms = (name: 'window' | 'openFor' | 'maxOpenFor' | 'probeTimeout'): number =>
    toMilliseconds(options[name], `${site} option "${name}"`);
  const { failureRate, minimumCalls, permits, onOpen, onStoreError, ignore, failOn } = options;
  return new CircuitBreakerPolicy({
    failureRate,
    minimumCalls,
    permits,
    windowMs: ms('window'),
    openMs: ms('openFor'),
    maxOpenMs: ms('maxOpenFor'),
    probeMs: ms('probeTimeout'),
    onOpen,
    onStoreError,
    ignore: ignore && matcherOf([ignore]),
    failOn: failOn && matcherOf([failOn]),
  });
}
