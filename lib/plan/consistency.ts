import { toMilliseconds } from '../clock/duration.js';
import { DefinitionError, show } from '../errors/definition.error.js';
import type { PolicyName } from '../errors/refusals.js';
import { DECORATOR_NAMES } from '../policies/option-rules.js';
import type { CompiledPlan } from './compiler.js';
import type { CompiledRing } from './context.js';

interface Known {
  readonly target: object;
  readonly task: string;
  readonly ring: CompiledRing;
}

/** The options in which the methods that share a state by name must agree. */
const SHARED: { readonly [P in PolicyName]?: readonly string[] } = {
  rateLimit: ['max', 'per', 'limiter'],
  circuitBreaker: [
    'failureRate',
    'minimumCalls',
    'window',
    'openFor',
    'maxOpenFor',
    'permits',
    'probeTimeout',
  ],
};

/** Those of them that are times: 60 and '1m' are the same. */
const TIMES: ReadonlySet<string> = new Set([
  'per',
  'window',
  'openFor',
  'maxOpenFor',
  'probeTimeout',
]);

/** Compares the plans of one application with each other. */
export class PlanConsistency {
  readonly #byKey = new Map<string, Known>();
  readonly #byBase = new Map<string, Known>();
  /** Tasks of idempotency by their key's base: one whose keys have owners, and one whose have none. */
  readonly #owned = new Map<string, string>();
  readonly #unowned = new Map<string, string>();

  /**
   * @throws DefinitionError when two classes of one name would meet in a key, or methods that share
   *   a limit or a breaker by `name` disagree about it, or share outcomes though only the keys of one
   *   have owners; when two policies would keep their state under one key
   */
  add(target: object, plan: CompiledPlan): void {
    for (const ring of plan.rings) {
      this.#assertOwnKeys({ target, task: plan.task, ring });
      if (ring.policy.policy === 'idempotency') this.#assertOwners(plan.task, ring);
      const identity = `${ring.policy.policy} ${ring.keyBase}`;
      const known = this.#byKey.get(identity);
      // A name may be another method's task: then both share its keys, whichever is seen first.
      const name = ring.options.name ?? known?.ring.options.name;
      if (!known) this.#byKey.set(identity, { target, task: plan.task, ring });
      else if (name === undefined) assertSameClass(known, target, plan.task, ring);
      else assertAgreement(known, plan.task, ring, name);
    }
  }

  /** A key without an owner is taken as it is, so it could read like one that somebody owns. */
  #assertOwners(task: string, { keyBase, key, options }: CompiledRing): void {
    if (!key || options['scope'] === 'shared') return;
    const [mine, others] =
      options['scope'] === undefined ? [this.#unowned, this.#owned] : [this.#owned, this.#unowned];
    mine.set(keyBase, task);
    const other = others.get(keyBase);
    if (other === undefined) return;
    const [scoped, unscoped] = mine === this.#owned ? [task, other] : [other, task];
    throw new DefinitionError(
      `${unscoped}: ${DECORATOR_NAMES.idempotency}: expected the option "scope" as on ${scoped}, which shares its keys (${keyBase}), because a key without one could read like that of somebody else; got none; give one another "name"`,
    );
  }

  #assertOwnKeys(known: Known): void {
    const { keyBase, policy } = known.ring;
    const first = this.#byBase.get(keyBase);
    if (!first) this.#byBase.set(keyBase, known);
    else if (first.ring.policy.policy !== policy.policy) {
      throw new DefinitionError(
        `${known.task}: ${DECORATOR_NAMES[policy.policy]}: expected keys of its own, got those of ${DECORATOR_NAMES[first.ring.policy.policy]} on ${first.task} (${keyBase}); give one another "namespace"`,
      );
    }
  }
}

function assertSameClass(known: Known, target: object, task: string, ring: CompiledRing): void {
  if (known.target === target) return;
  throw new DefinitionError(
    `${task}: ${DECORATOR_NAMES[ring.policy.policy]}: expected one class of that name, got two, whose keys would meet (${ring.keyBase}); rename one, or give them a "name" or "namespace"`,
  );
}

function assertAgreement(known: Known, task: string, ring: CompiledRing, name: string): void {
  const { policy } = ring.policy;
  for (const option of SHARED[policy] ?? []) {
    const [theirs, ours] = [known.ring.options[option], ring.options[option]];
    if (comparable(option, theirs) === comparable(option, ours)) continue;
    throw new DefinitionError(
      `${task}: ${DECORATOR_NAMES[policy]} option "${option}": expected ${show(theirs)} as on ${known.task}, which shares the name "${name}"; got ${show(ours)}`,
    );
  }
}

function comparable(option: string, value: unknown): unknown {
  return TIMES.has(option) ? toMilliseconds(value, option) : value;
}
