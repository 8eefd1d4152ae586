import { once } from '../process-wide.js';
import { parseClaim } from './claim.js';
import type { Store } from './store.js';
import { wholeKey } from './whole-key.js';

/** What is known of the work of a key. */
export interface IdempotencyRecord {
  /**
   * - `in_progress`: a run is at work
   * - `abandoned`: a run began, and never told how it ended
   * - `done`: finished, and its answer is kept
   * - `tombstone`: finished, and there is no answer that could be given again
   */
  readonly state: 'in_progress' | 'abandoned' | 'done' | 'tombstone';
  /** 1, and one more each time an abandoned run was taken over. */
  readonly run: number;
  /** The `tid` of that run. */
  readonly tid: string;
  /** Seconds for which this is remembered. */
  readonly remainingTtl: number;
  /** When `in_progress`: seconds until it counts as abandoned, if its owner is silent. */
  readonly remainingLease?: number;
}

class IdempotencyRecordsService {
  constructor(private readonly store: Store) {}

  /**
   * What became of the work of a key.
   *
   * @param key the whole store key: `metadata.idempotencyKey` of a refusal or an event, or
   *   `StoreKey.compose('cmdx:idem', 'Payments.create', segment)`
   * @returns `undefined` when nothing is remembered under the key
   * @throws DefinitionError unless `key` is a non-empty string; StoreError when the store does not answer
   */
  async inspect(key: string): Promise<IdempotencyRecord | undefined> {
    const report = await this.store.inspect(wholeKey(key, 'IdempotencyRecords.inspect'));
    const record = report && parseClaim(report.value);
    if (!record) return undefined;
    const { run, token: tid } = record;
    const remainingMs = record.leaseUntil - report.at;
    const facts = { run, tid, remainingTtl: report.remainingTtl };
    if (record.state !== 'pending') return { state: record.state, ...facts };
    return remainingMs > 0
      ? { state: 'in_progress', ...facts, remainingLease: remainingMs / 1_000 }
      : { state: 'abandoned', ...facts };
  }

  /**
   * Forgets the work of a key, whatever became of it: the next call is the first again. For an
   * abandoned run, once you know what it did.
   *
   * @param key see {@link inspect}
   * @returns whether there was something to forget; what is no record of idempotency stays
   * @throws DefinitionError unless `key` is a non-empty string; StoreError when the store does not answer
   */
  async forget(key: string): Promise<boolean> {
    const report = await this.store.inspect(wholeKey(key, 'IdempotencyRecords.forget'));
    if (!report || !parseClaim(report.value)) return false;
    return this.store.forget(key);
  }
}

/** For operators: looks at what `@IdempotentBy` remembers. Injectable; one class per process. */
export const IdempotencyRecords: typeof IdempotencyRecordsService = once(
  'IdempotencyRecords',
  () => IdempotencyRecordsService,
);
export interface IdempotencyRecords extends IdempotencyRecordsService {}
