import { toMilliseconds } from '../../clock/duration.js';
import { compileKey } from '../../keys/compiled-key.js';
import type { KeySpec } from '../../keys/key-resolver.js';
import { LockPolicy } from '../../policies/lock.js';
import type { LockOptions } from '../../policies/options.js';
import { defined, type RingParts, type RingSource } from '../context.js';

/** What an option is where nobody says otherwise. */
const LOCK_DEFAULTS = {
  ttl: 300,
  wait: 0,
  namespace: 'cmdx:lock',
  onBusy: 'fail',
  onBlank: 'bypass',
  onStoreError: 'fail',
} as const satisfies LockOptions;

export function lockParts({ merged, declaration, context, site }: RingSource): RingParts {
  const options: Effective = {
    ...LOCK_DEFAULTS,
    ...defined(context.defaults.lock),
    ...merged.options,
  };
  return {
    policy: lockPolicy(options, site),
    options: { ...options },
    key: compileKey(merged.subject as KeySpec | undefined, declaration.shape, context.lookup),
  };
}

type Effective = LockOptions & Required<Pick<LockOptions, keyof typeof LOCK_DEFAULTS>>;

function lockPolicy(options: Effective, site: string): LockPolicy {
  const { wait } = options;
  return new LockPolicy({
    ttlMs: toMilliseconds(options.ttl, `${site} option "ttl"`),
    waitMs:
      wait === null || wait === false ? 0 : toMilliseconds(wait, `${site} option "wait"`, true),
    onBusy: options.onBusy,
    onStoreError: options.onStoreError,
  });
}
