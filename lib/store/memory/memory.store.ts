import { type Clock, every } from '../../clock/clock.js';
import type { Deadline } from '../../clock/deadline.js';
import { type Duration, toMilliseconds } from '../../clock/duration.js';
import { DefinitionError, show } from '../../errors/definition.error.js';
import { StoreError } from '../../errors/store.error.js';
import { outside } from '../../process-wide.js';
import { claim, complete, type ClaimRecord, parseClaim, unclaim } from '../claim.js';
import {
  circuitLifetimeMs,
  type CircuitRecord,
  enterCircuit,
  nearnessToOpening,
  newCircuit,
  parseCircuit,
  recordOutcome,
  unpermit,
} from '../circuit.js';
import { incrementOf } from '../increment.js';
import {
  type CircuitReply,
  type CircuitStep,
  type ClaimReply,
  type ClaimStep,
  type CompleteReply,
  type CompleteStep,
  type EnterReply,
  type EnterStep,
  type FixedWindowReply,
  type FixedWindowStep,
  type Hold,
  type KeyReport,
  type LeakyBucketReply,
  type LeakyBucketStep,
  type LeaseReply,
  type LeaseStep,
  type LeaveReply,
  type LeaveStep,
  type OutcomeReply,
  type OutcomeStep,
  type ReleaseStep,
  Store,
  type UnclaimStep,
  type UnpermitReply,
  type UnpermitStep,
} from '../store.js';
import { Bucket, Circuit, Claim, Text, Window } from './memory-entries.js';
import { type Entry, MemoryRecords, type Slot } from './memory-records.js';

export interface MemoryStoreOptions {
  /** Most keys held at once. Default 100,000. */
  readonly maxKeys?: number;
  /** Most bytes held at once, keys and values estimated. Default 64 MiB. */
  readonly maxBytes?: number;
}

const SWEEP_EVERY_MS = 5_000;

/**
 * Keeps the state of one process: every step is plain synchronous code of constant cost, with no
 * timer per key. It coordinates nothing between processes.
 *
 * When it is full, expired keys go first, then the least-filled rate counters and the closed
 * circuits that are farthest from opening; a lease, a claim, an outcome and any other circuit never
 * do. An outcome for which there is no room is remembered as done, without it.
 */
export class MemoryStore extends Store {
  override readonly processLocal = true;
  readonly #records: MemoryRecords;
  #stopSweeper: (() => void) | undefined;

  /** @throws DefinitionError when a bound is not a positive whole number */
  constructor(options: MemoryStoreOptions = {}) {
    super();
    this.#records = new MemoryRecords(
      bound('maxKeys', options.maxKeys ?? 100_000),
      bound('maxBytes', options.maxBytes ?? 64 * 1024 * 1024),
    );
  }

  /** Keys held now, expired ones that were not swept yet included. */
  get size(): number {
    return this.#records.size;
  }

  override useClock(clock: Clock): void {
    super.useClock(clock);
    this.#restartSweeper();
  }

  enter(steps: readonly EnterStep[], deadline: Deadline): EnterReply[] {
    if (deadline.remaining() <= 0) throw new StoreError('late', 'The deadline has passed.');
    // One moment for all steps, as on a server.
    const now = this.#nowMs();
    const replies: EnterReply[] = [];
    const taken: Taken[] = [];
    try {
      for (const step of steps) {
        const reply = this.#take(step, now, taken);
        replies.push(reply);
        if (!reply.admitted) {
          this.#giveBack(taken, now);
          break;
        }
      }
    } catch (error) {
      this.#giveBack(taken, now);
      throw error;
    }
    return replies;
  }

  leave(steps: readonly LeaveStep[]): LeaveReply[] {
    const now = this.#nowMs();
    const replies: LeaveReply[] = [];
    const failures: unknown[] = [];
    for (const step of steps) {
      try {
        replies.push(this.#leave(step, now));
      } catch (error) {
        // One that cannot be given back keeps none of the others.
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
    return replies;
  }

  async renew(holds: readonly Hold[]): Promise<readonly boolean[]> {
    const now = this.#nowMs();
    return holds.map((hold) => {
      const slot = this.#records.slot(hold.key);
      const record = claimIn(slot.live(now));
      if (record?.token !== hold.token || record.state !== 'pending') return false;
      const leaseUntil = now + hold.leaseMs;
      this.#remember(slot, { ...record, leaseUntil }, leaseUntil + hold.ttlMs, now);
      return true;
    });
  }

  async get(key: string): Promise<string | undefined> {
    return this.#records.find(key, this.#nowMs())?.text();
  }

  async set(
    key: string,
    value: string,
    options: { readonly ttl: Duration; readonly ifAbsent?: boolean },
  ): Promise<boolean> {
    const now = this.#nowMs();
    const expiresAt = now + toMilliseconds(options.ttl, 'Store.set option "ttl"');
    const slot = this.#records.slot(key);
    if (options.ifAbsent && slot.live(now)) return false;
    this.#put(slot, new Text(value, expiresAt), now);
    return true;
  }

  async incr(
    key: string,
    options: { readonly by?: number; readonly ttl: Duration },
  ): Promise<number> {
    const { by, ttlMs } = incrementOf(options);
    const now = this.#nowMs();
    const slot = this.#records.slot(key);
    const found = slot.live(now);
    const before = found ? integerIn(found.text()) : 0;
    if (before === undefined) {
      // No key: the message is written to logs.
      throw new StoreError('error', 'Store.incr: the value under the key is not a whole number.');
    }
    const sum = before + by;
    this.#put(slot, new Window(sum, sum, found?.expiresAt ?? now + ttlMs), now);
    return sum;
  }

  async delete(key: string, options: { readonly ifEquals?: string } = {}): Promise<boolean> {
    const slot = this.#records.slot(key);
    const found = slot.live(this.#nowMs());
    if (!found) return false;
    if (options.ifEquals !== undefined && found.text() !== options.ifEquals) return false;
    return this.#records.drop(slot);
  }

  async remainingTtl(key: string): Promise<number | undefined> {
    const now = this.#nowMs();
    const found = this.#records.find(key, now);
    return found && (found.expiresAt - now) / 1_000;
  }

  async inspect(key: string): Promise<KeyReport | undefined> {
    const at = this.#nowMs();
    const found = this.#records.find(key, at);
    return found && { value: found.text(), remainingTtl: (found.expiresAt - at) / 1_000, at };
  }

  /** Stops the sweeper. The records stay: another application may have been given the same store. */
  override async close(): Promise<void> {
    this.#pauseSweeper();
  }

  #take(step: EnterStep, now: number, taken: Taken[]): EnterReply {
    switch (step.kind) {
      case 'fixed_window':
        return this.#count(step, now);
      case 'leaky_bucket':
        return this.#pour(step);
      case 'circuit':
        return this.#enterCircuit(step, now, taken);
      case 'lease':
        return this.#lease(step, now, taken);
      case 'claim':
        return this.#claim(step, now, taken);
    }
  }

  #leave(step: LeaveStep, now: number): LeaveReply {
    switch (step.kind) {
      case 'release':
        return { kind: 'release', released: this.#release(step, now) };
      case 'complete':
        return { kind: 'complete', state: this.#complete(step, now) };
      case 'unclaim':
        return { kind: 'unclaim', state: this.#unclaim(step, now) };
      case 'outcome':
        return this.#recordOutcome(step, now);
      case 'unpermit':
        return this.#unpermit(step, now);
    }
  }

  #count(step: FixedWindowStep, now: number): FixedWindowReply {
    const slot = this.#records.slot(step.key);
    const found = slot.live(now);
    let window = found instanceof Window ? found : windowIn(found);
    if (window && window.value >= 0) {
      window.value += 1;
      window.fill = window.value / step.max;
    } else {
      window = new Window(1, 1 / step.max, now + step.windowMs);
    }
    if (window !== found) this.#put(slot, window, now);
    const count = window.value;
    return {
      kind: 'fixed_window',
      admitted: count <= step.max,
      count,
      remainingMs: window.expiresAt - now,
    };
  }

  #pour(step: LeakyBucketStep): LeakyBucketReply {
    const nowUs = Math.floor(this.clock.now() * 1_000);
    const nowMs = Math.floor(nowUs / 1_000);
    const slot = this.#records.slot(step.key);
    const found = slot.live(nowMs);
    const bucket = found instanceof Bucket ? found : levelIn(found);
    const drained = bucket ? Math.max(0, bucket.levelUs - Math.max(0, nowUs - bucket.lastAtUs)) : 0;
    const levelUs = drained + step.costUs;
    if (levelUs > step.capacityUs) {
      const retryMs = Math.ceil((levelUs - step.capacityUs) / 1_000);
      return { kind: 'leaky_bucket', admitted: false, levelUs, retryMs };
    }
    this.#put(slot, new Bucket(levelUs, nowUs, levelUs / step.capacityUs), nowMs);
    return { kind: 'leaky_bucket', admitted: true, levelUs, retryMs: 0 };
  }

  #enterCircuit(step: CircuitStep, now: number, taken: Taken[]): CircuitReply {
    const found = this.#circuitIn(this.#records.slot(step.key), now);
    // No key: the message is written to logs.
    if (found === null) throw new StoreError('error', 'The key of a circuit holds something else.');
    const before = permitOf(found, step.token);
    const reply = enterCircuit(found?.record, step, now);
    if (found && reply.admitted && permitOf(found, step.token) !== before) {
      found.expiresAt = now + circuitLifetimeMs(found.record, step, now);
      taken.push({ kind: 'permit', step });
    }
    return reply;
  }

  #recordOutcome(step: OutcomeStep, now: number): OutcomeReply {
    const slot = this.#records.slot(step.key);
    const found = this.#circuitIn(slot, now);
    if (found === null) return { kind: 'outcome', state: 'stale' };
    const record = found?.record ?? newCircuit();
    const reply = recordOutcome(record, step, now);
    if (reply.state === 'stale') return reply;
    const expiresAt = now + circuitLifetimeMs(record, step, now);
    // A success brings it no nearer.
    const fill = step.success ? (found?.fill ?? 0) : nearnessToOpening(record, step);
    if (found && !reply.transition) {
      found.expiresAt = expiresAt;
      found.fill = fill;
    } else this.#put(slot, new Circuit(record, expiresAt, fill), now);
    return reply;
  }

  #unpermit(step: UnpermitStep, now: number): UnpermitReply {
    return unpermit(this.#circuitIn(this.#records.slot(step.key), now)?.record, step, now);
  }

  /**
   * A text that an operator has set becomes a breaker when it is first asked.
   *
   * @returns `null` when something else stands there
   */
  #circuitIn(slot: Slot, now: number): Circuit | null | undefined {
    const entry = slot.live(now);
    if (!entry || entry instanceof Circuit) return entry;
    const record: CircuitRecord | undefined = parseCircuit(entry.text());
    if (!record) return null;
    const circuit = new Circuit(record, entry.expiresAt);
    this.#records.put(slot, circuit, now);
    return circuit;
  }

  #lease(step: LeaseStep, now: number, taken: Taken[]): LeaseReply {
    const slot = this.#records.slot(step.key);
    const found = slot.live(now);
    const holder = found?.text();
    if (found && holder !== undefined && holder !== step.token) {
      return { kind: 'lease', admitted: false, holder, remainingMs: found.expiresAt - now };
    }
    this.#put(slot, new Text(step.token, now + step.ttlMs), now);
    if (!found) taken.push({ kind: 'record', slot, before: undefined });
    return { kind: 'lease', admitted: true };
  }

  #claim(step: ClaimStep, now: number, taken: Taken[]): ClaimReply {
    const slot = this.#records.slot(step.key);
    const before = slot.live(now);
    const found = claimIn(before);
    // No key: the message is written to logs.
    if (found === null) throw new StoreError('error', 'The key of a claim holds something else.');
    const { reply, next } = claim(found, step, now);
    if (next) {
      this.#remember(slot, next, next.leaseUntil + step.ttlMs, now);
      if (found?.token !== step.token) taken.push({ kind: 'record', slot, before });
    }
    return reply;
  }

  #complete(step: CompleteStep, now: number): CompleteReply['state'] {
    const slot = this.#records.slot(step.key);
    const found = claimIn(slot.live(now));
    if (found === null) return 'stale';
    const { state, next } = complete(found, step);
    if (!next) return state;
    try {
      this.#remember(slot, next, now + step.ttlMs, now);
    } catch {
      // A record of the claim's own size always fits in the claim's place.
      this.#remember(slot, { ...next, state: 'tombstone', outcome: '' }, now + step.ttlMs, now);
    }
    return state;
  }

  #unclaim(step: UnclaimStep, now: number): ReturnType<typeof unclaim> {
    const slot = this.#records.slot(step.key);
    const found = claimIn(slot.live(now));
    if (found === null) return 'stale';
    const state = unclaim(found, step);
    if (state === 'dropped') this.#records.drop(slot);
    return state;
  }

  #remember(slot: Slot, record: ClaimRecord, expiresAt: number, now: number): void {
    this.#put(slot, new Claim(record, expiresAt), now);
  }

  #put(slot: Slot, entry: Entry, now: number): void {
    this.#records.put(slot, entry, now);
    this.#wakeSweeper();
  }

  /** Undoes what this very call took; what was held before stays. */
  #giveBack(taken: readonly Taken[], now: number): void {
    for (const each of taken) {
      if (each.kind === 'record') this.#records.drop(each.slot);
      else this.#unpermit({ ...each.step, kind: 'unpermit' }, now);
    }
    for (const each of taken) {
      // There is room for it, as there was before the call.
      if (each.kind === 'record' && each.before) {
        this.#records.put(each.slot, each.before, now);
      }
    }
  }

  #release({ key, token }: ReleaseStep, now: number): boolean {
    const slot = this.#records.slot(key);
    return slot.live(now)?.text() === token && this.#records.drop(slot);
  }

  /** Whole milliseconds, as a Redis server counts them. */
  #nowMs(): number {
    return Math.floor(this.clock.now());
  }

  #wakeSweeper(): void {
    this.#stopSweeper ??= outside(() => every(this.clock, SWEEP_EVERY_MS, this.#sweep));
  }

  readonly #sweep = (): void => {
    this.#records.sweep(this.#nowMs());
    if (this.#records.size === 0) this.#pauseSweeper();
  };

  #pauseSweeper(): void {
    this.#stopSweeper?.();
    this.#stopSweeper = undefined;
  }

  #restartSweeper(): void {
    if (!this.#stopSweeper) return;
    this.#pauseSweeper();
    this.#wakeSweeper();
  }
}

/** What a call has taken: a key, with what stood there before, or a probe's permit. */
type Taken =
  | { readonly kind: 'record'; readonly slot: Slot; readonly before: Entry | undefined }
  | { readonly kind: 'permit'; readonly step: CircuitStep };

function permitOf(circuit: Circuit | undefined, token: string): object | undefined {
  return circuit?.record.permits.find((permit) => permit.token === token);
}

/** @returns `null` when something else stands there */
function claimIn(entry: Entry | undefined): ClaimRecord | null | undefined {
  if (!entry) return undefined;
  return entry instanceof Claim ? entry : (parseClaim(entry.text()) ?? null);
}

/** Counts on from a text that an application has set. */
function windowIn(entry: Entry | undefined): Window | undefined {
  if (!entry) return undefined;
  const count = integerIn(entry.text());
  return count === undefined ? undefined : new Window(count, 0, entry.expiresAt);
}

/** The same of a bucket: `level:last_at`. */
function levelIn(entry: Entry | undefined): Pick<Bucket, 'levelUs' | 'lastAtUs'> | undefined {
  const match = entry && /^(\d{1,16}):(\d{1,16})$/.exec(entry.text());
  return match ? { levelUs: Number(match[1]), lastAtUs: Number(match[2]) } : undefined;
}

/** A whole number of 64 bits as a Redis server reads it: no plus, no zeros in front. */
function integerIn(text: string): number | undefined {
  const value = /^(?:0|-?[1-9]\d*)$/.test(text) ? Number(text) : NaN;
  return Math.abs(value) < 2 ** 63 ? value : undefined;
}

function bound(name: string, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new DefinitionError(
    `MemoryStore option "${name}": expected a positive whole number, got ${show(value)}`,
  );
}
