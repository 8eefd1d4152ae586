import { toMilliseconds } from '../../clock/duration.js';
import { DefinitionError } from '../../errors/definition.error.js';
import { type CompiledKey, compileKey } from '../../keys/compiled-key.js';
import { compileFingerprint } from '../../keys/fingerprint.js';
import type { KeySpec } from '../../keys/key-resolver.js';
import { scopedKey } from '../../keys/scoped-key.js';
import { IdempotencyPolicy } from '../../policies/idempotency.js';
import type { IdempotencyOptions } from '../../policies/options.js';
import { defined, type PlanContext, type RingParts, type RingSource } from '../context.js';

/** What an option is where nobody says otherwise. */
const IDEMPOTENCY_DEFAULTS = {
  ttl: '24h',
  lease: 60,
  wait: 30,
  namespace: 'cmdx:idem',
  onDuplicate: 'replay',
  onInProgress: 'fail',
  onAbandoned: 'fail',
  maxBytes: 64 * 1024,
  onBlank: 'bypass',
  onStoreError: 'fail',
} as const satisfies IdempotencyOptions;

/** @throws DefinitionError when there is no key, or a scope is demanded and missing */
export function idempotencyParts({ merged, declaration, context, site }: RingSource): RingParts {
  if (merged.subject === undefined) {
    throw new DefinitionError(
      `${site}: expected a key, own or inherited, got none; perTask lets the work of the whole task be done once per ttl`,
    );
  }
  const key = compileKey(merged.subject as KeySpec, declaration.shape, context.lookup);
  const { scope: _default, ...options }: Effective = {
    ...IDEMPOTENCY_DEFAULTS,
    ...defined(context.defaults.idempotency),
    ...merged.options,
  };
  const scope = scopeOf(merged.options, key, context, site);
  const scopeKey =
    scope === undefined || scope === 'shared'
      ? scope
      : compileKey(scope as KeySpec, declaration.shape, context.lookup);
  const byHeader = key !== undefined && key.headers !== 'none';
  const fingerprint = options.fingerprint ?? (declaration.handler && byHeader && 'request');
  return {
    policy: idempotencyPolicy(options, site, declaration.shape.warnOnce),
    options: { ...options, fingerprint, ...(scope !== undefined && { scope }) },
    key: scopeKey === undefined ? key : scopedKey(key, scopeKey),
    fingerprint: fingerprint === false ? undefined : compileFingerprint(fingerprint),
  };
}

type Effective = IdempotencyOptions &
  Required<Pick<IdempotencyOptions, keyof typeof IDEMPOTENCY_DEFAULTS>>;

/**
 * Whose keys they are. The module's default steps in only where a key demands it: a scope that reads
 * the request is blank in a job at night.
 */
function scopeOf(
  written: IdempotencyOptions,
  key: CompiledKey | undefined,
  context: PlanContext,
  site: string,
): IdempotencyOptions['scope'] {
  if (written.scope !== undefined || key?.headers !== 'all') return written.scope;
  const scope = context.defaults.idempotency?.scope;
  if (scope !== undefined) return scope;
  throw new DefinitionError(
    `${site}: expected the option "scope", because clients choose the key ${key.text} and one must not get another's answer; for example scope: fromRequest((request) => request.user.id), or scope: 'shared' if all clients share their keys; got none`,
  );
}

/** @param warn told what keeps answers of the method from being given again */
function idempotencyPolicy(
  options: Effective,
  site: string,
  warn: (message: string) => void,
): IdempotencyPolicy {
  const ms = (name: 'ttl' | 'lease' | 'wait'): number =>
    toMilliseconds(options[name], `${site} option "${name}"`);
  return new IdempotencyPolicy({
    ttlMs: ms('ttl'),
    leaseMs: ms('lease'),
    waitMs: ms('wait'),
    onDuplicate: options.onDuplicate,
    onInProgress: options.onInProgress,
    onAbandoned: options.onAbandoned,
    onStoreError: options.onStoreError,
    codec: options.codec,
    returns: options.returns,
    maxBytes: options.maxBytes,
    warn: (message) => warn(`${site}: ${message}`),
  });
}
