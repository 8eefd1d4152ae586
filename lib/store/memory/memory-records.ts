import { StoreError } from '../../errors/store.error.js';

/** One record of the memory store. */
export interface Entry {
  /** Whole milliseconds on the store's clock. */
  readonly expiresAt: number;
  /** Estimated size of the value. */
  readonly bytes: number;
  /** Whether it may be dropped when the store is full: rate counters and closed circuits only. */
  readonly evictable: boolean;
  /** How much of its limit it has used: the least-filled goes first. */
  readonly fill: number;
  text(): string;
}

/** What a map slot, an entry object and a short key cost, measured on V8 and rounded up. */
const OVERHEAD_BYTES = 120;
/** How many counters are looked at to find one to drop: constant work, close enough to the least-filled. */
const EVICTION_SAMPLE = 64;
/** So many emptied slots are left standing before they are cleared away, at least. */
const FEWEST_VACANT = 1_024;
/** A full store looks for expired records everywhere at most this often. */
const FULL_SWEEP_EVERY_MS = 1_000;

/**
 * A map with a bound on keys and bytes. Counters stand apart from what must never be dropped, so
 * that finding a victim takes constant work however many leases there are.
 *
 * What ends leaves its slot behind, for the next record of the same key: V8 keeps a deleted key in
 * its bucket's chain until the whole map is rebuilt, so that one busy key, inserted and deleted over
 * and over in a large map, would make every look at it walk thousands of them.
 */
export class MemoryRecords {
  readonly #counters = new Map<string, Entry>();
  /** `undefined`: the slot is vacant. */
  readonly #held = new Map<string, Entry | undefined>();
  #vacant = 0;
  #bytes = 0;
  #cursor: IterableIterator<[string, Entry]> | undefined;
  #lastFullSweep = -Infinity;

  constructor(
    private readonly maxKeys: number,
    private readonly maxBytes: number,
  ) {}

  get size(): number {
    return this.#counters.size + this.#held.size - this.#vacant;
  }

  /** The live record under `key`; an expired one is not seen, and stands until it is replaced or swept. */
  find(key: string, now: number): Entry | undefined {
    const entry = this.#counters.get(key) ?? this.#held.get(key);
    return entry && entry.expiresAt > now ? entry : undefined;
  }

  /** @throws StoreError (`full`) when there is no room and nothing may be dropped */
  put(key: string, entry: Entry, now: number): void {
    const size = sizeOf(key, entry);
    const map = entry.evictable ? this.#counters : this.#held;
    const previous = map.get(key);
    if (previous) {
      // The slot stays where it is, so a hot counter costs one map write.
      const growth = size - sizeOf(key, previous);
      if (growth > 0 && this.#bytes + growth > this.maxBytes) {
        this.#makeRoom(growth, 0, now, key);
        // It had expired itself, and was swept away with the others.
        if (map.get(key) !== previous) return this.put(key, entry, now);
      }
      map.set(key, entry);
      this.#bytes += growth;
      return;
    }
    // A text that becomes a counter, or a circuit that has opened.
    const other = entry.evictable ? this.#held : this.#counters;
    if (other.get(key)) this.drop(key);
    if (this.size >= this.maxKeys || this.#bytes + size > this.maxBytes) {
      this.#makeRoom(size, 1, now, key);
    }
    const slots = map.size;
    map.set(key, entry);
    if (map.size === slots) this.#vacant -= 1;
    this.#bytes += size;
  }

  drop(key: string): boolean {
    const counter = this.#counters.get(key);
    const entry = counter ?? this.#held.get(key);
    if (!entry) return false;
    this.#bytes -= sizeOf(key, entry);
    if (counter) return this.#counters.delete(key);
    this.#held.set(key, undefined);
    this.#vacant += 1;
    if (this.#vacant > FEWEST_VACANT && this.#vacant > this.#held.size / 2) this.#clearVacant();
    return true;
  }

  /** Drops everything that has expired. */
  sweep(now: number): void {
    for (const [key, entry] of this.#counters) if (entry.expiresAt <= now) this.drop(key);
    for (const [key, entry] of this.#held) if (entry && entry.expiresAt <= now) this.drop(key);
    this.#clearVacant();
  }

  /** Takes as long as there are slots, but is due only after half as many have been emptied. */
  #clearVacant(): void {
    for (const [key, entry] of this.#held) if (!entry) this.#held.delete(key);
    this.#vacant = 0;
  }

  #makeRoom(bytes: number, keys: number, now: number, forKey: string): void {
    if (now - this.#lastFullSweep >= FULL_SWEEP_EVERY_MS) {
      this.#lastFullSweep = now;
      this.sweep(now);
    }
    while (this.size + keys > this.maxKeys || this.#bytes + bytes > this.maxBytes) {
      const victim = this.#leastFilled(now, forKey);
      if (victim === undefined) throw new StoreError('full', 'The memory store is full.');
      this.drop(victim);
    }
  }

  #leastFilled(now: number, forKey: string): string | undefined {
    let victim: string | undefined;
    let least = Infinity;
    const looks = Math.min(EVICTION_SAMPLE, this.#counters.size);
    for (let look = 0; look < looks; look++) {
      const [key, entry] = this.#nextCounter();
      if (key === forKey) continue;
      if (entry.expiresAt <= now) return key;
      if (victim === undefined || entry.fill < least) {
        least = entry.fill;
        victim = key;
      }
    }
    return victim;
  }

  /** Walks round the counters, so that successive samples see all of them. */
  #nextCounter(): [string, Entry] {
    this.#cursor ??= this.#counters.entries();
    let next = this.#cursor.next();
    if (next.done) {
      this.#cursor = this.#counters.entries();
      next = this.#cursor.next();
    }
    return next.value as [string, Entry];
  }
}

function sizeOf(key: string, entry: Entry): number {
  return OVERHEAD_BYTES + key.length * 2 + entry.bytes;
}
