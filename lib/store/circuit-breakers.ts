import { type Duration, toMilliseconds } from '../clock/duration.js';
import { DefinitionError } from '../errors/definition.error.js';
import { once } from '../process-wide.js';
import { circuitText, type CircuitRecord, newCircuit, parseCircuit } from './circuit.js';
import type { Store } from './store.js';
import { wholeKey } from './whole-key.js';

/** What is known of a circuit breaker. */
export interface CircuitBreakerReport {
  /** `open` until its time is over; then the next call makes it `half_open`. */
  readonly state: 'closed' | 'open' | 'half_open' | 'forced_open' | 'forced_closed';
  /** Grows with each change of state. */
  readonly epoch: number;
  /** Calls and failures counted since it closed, in the buckets that the store still has. */
  readonly calls: number;
  readonly failures: number;
  /** When open: seconds until a probe may be let in. */
  readonly retryAfter?: number;
}

/** How long what an operator has said is remembered, if he does not say. */
const REMEMBERED_FOR = '1h';

class CircuitBreakersService {
  constructor(private readonly store: Store) {}

  /**
   * @param key the whole store key: `metadata.circuitKey` of a refusal or an event, for example
   *   `cmdx:cb:payments-api`
   * @returns `undefined` for a breaker of which nothing is stored: it is closed, and has counted nothing
   * @throws DefinitionError unless `key` is a non-empty string; StoreError when the store does not answer
   */
  async inspect(key: string): Promise<CircuitBreakerReport | undefined> {
    const report = await this.store.inspect(wholeKey(key, 'CircuitBreakers.inspect'));
    const record = report && parseCircuit(report.value);
    if (!record) return undefined;
    const { state, epoch, buckets, openUntil } = record;
    return {
      state,
      epoch,
      calls: buckets.reduce((sum, bucket) => sum + bucket.calls, 0),
      failures: buckets.reduce((sum, bucket) => sum + bucket.failures, 0),
      ...(state === 'open' && { retryAfter: Math.max(0, openUntil - report.at) / 1_000 }),
    };
  }

  /**
   * Refuses every call, until `reset`, or for `ttl` (default 1 h; every key has an end).
   *
   * @param key see {@link inspect}
   */
  forceOpen(key: string, options: { readonly ttl?: Duration } = {}): Promise<void> {
    return this.#force(wholeKey(key, 'CircuitBreakers.forceOpen'), 'forced_open', options.ttl);
  }

  /**
   * Lets every call through and counts none, until `reset`, or for `ttl` (default 1 h).
   *
   * @param key see {@link inspect}
   */
  forceClosed(key: string, options: { readonly ttl?: Duration } = {}): Promise<void> {
    return this.#force(wholeKey(key, 'CircuitBreakers.forceClosed'), 'forced_closed', options.ttl);
  }

  /**
   * Forgets whatever the breaker has counted, and what was forced: it is closed, and calls that were
   * under way are not counted when they end.
   *
   * @param key see {@link inspect}
   * @returns whether there was something to forget. Where nothing is stored, or no breaker, nothing is
   *   changed; then the calls under way are counted, too.
   */
  async reset(key: string): Promise<boolean> {
    const report = await this.store.inspect(wholeKey(key, 'CircuitBreakers.reset'));
    const before = report && parseCircuit(report.value);
    if (!report || !before) return false;
    // Not deleted: without an epoch of its own it would take what is under way for a call of now.
    await this.#write(key, 'closed', before, report.at, REMEMBERED_FOR);
    return before.state !== 'closed' || before.buckets.length > 0;
  }

  async #force(
    key: string,
    state: 'forced_open' | 'forced_closed',
    ttl: Duration = REMEMBERED_FOR,
  ): Promise<void> {
    toMilliseconds(ttl, 'CircuitBreakers option "ttl"');
    const report = await this.store.inspect(key);
    const before = report && parseCircuit(report.value);
    if (report && !before) {
      throw new DefinitionError(
        `CircuitBreakers: expected the key of a circuit breaker, got another`,
      );
    }
    await this.#write(key, state, before, report?.at ?? 0, ttl);
  }

  /**
   * What the breaker has become since it was looked at is overruled like what it was before. A probe
   * of it, if there is one, has a later epoch than the one that is written, and so is not heard either.
   */
  async #write(
    key: string,
    state: CircuitRecord['state'],
    before: CircuitRecord | undefined,
    at: number,
    ttl: Duration,
  ): Promise<void> {
    const epoch = Math.max((before?.epoch ?? 0) + 1, at);
    await this.store.set(key, circuitText({ ...newCircuit(), state, epoch }), { ttl });
  }
}

/**
 * For operators: looks at breakers and overrules them. It tells no event: those are of calls, and tell
 * what breakers have decided. Injectable; one class per process.
 */
export const CircuitBreakers: typeof CircuitBreakersService = once(
  'CircuitBreakers',
  () => CircuitBreakersService,
);
export interface CircuitBreakers extends CircuitBreakersService {}
