import { Bag, type Bagged } from '../../bag.js';
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

/** Where the record of one key stands. Known to the map only while it has held one, see below. */
export class Slot implements Bagged {
  entry: Entry | undefined;
  /** Whether the map knows it. */
  placed = false;
  /** Where it stands among those that may be dropped. */
  at = -1;

  constructor(readonly key: string) {}

  /** The record, unless it has expired: then it is not seen, and stands until it is replaced or swept. */
  live(now: number): Entry | undefined {
    const { entry } = this;
    return entry && entry.expiresAt > now ? entry : undefined;
  }
}

/** What a map entry, a slot, a record and a short key cost, measured on V8 and rounded up. */
const OVERHEAD_BYTES = 160;
/** How many counters are looked at to find one to drop: constant work, close enough to the least-filled. */
const EVICTION_SAMPLE = 64;
/** So many emptied slots are left standing before they are cleared away, at least. */
const FEWEST_VACANT = 1_024;
/** A full store looks for expired records everywhere at most this often. */
const FULL_SWEEP_EVERY_MS = 1_000;

/**
 * A map with a bound on keys and bytes. What may be dropped is listed apart from what must never be,
 * so that finding a victim takes constant work however many leases there are. A look at a large map
 * is the dearest part of a step, so each step takes one, and works on the slot it has found.
 *
 * What ends leaves its slot behind, for the next record of the same key: V8 keeps a deleted key in
 * its bucket's chain until the whole map is rebuilt, so that one busy key, inserted and deleted over
 * and over in a large map, would make every look at it walk thousands of them.
 */
export class MemoryRecords {
  readonly #slots = new Map<string, Slot>();
  readonly #counters = new Bag<Slot>();
  #vacant = 0;
  #bytes = 0;
  #lastFullSweep = -Infinity;

  constructor(
    private readonly maxKeys: number,
    private readonly maxBytes: number,
  ) {}

  get size(): number {
    return this.#slots.size - this.#vacant;
  }

  /** The live record under `key`. */
  find(key: string, now: number): Entry | undefined {
    return this.#slots.get(key)?.live(now);
  }

  /** Where the record of `key` stands, or would. */
  slot(key: string): Slot {
    return this.#slots.get(key) ?? new Slot(key);
  }

  /** @throws StoreError (`full`) when there is no room and nothing may be dropped */
  put(slot: Slot, entry: Entry, now: number): void {
    const previous = slot.entry;
    const keys = previous ? 0 : 1;
    const growth = sizeOf(slot, entry) - (previous ? sizeOf(slot, previous) : 0);
    if (this.#lacksRoom(growth, keys)) {
      this.#makeRoom(growth, keys, now, slot);
      // It had expired itself, and was swept away with the others.
      if (slot.entry !== previous) return this.put(slot, entry, now);
    }
    if (!slot.placed) {
      slot.placed = true;
      this.#slots.set(slot.key, slot);
    } else if (!previous) {
      this.#vacant -= 1;
    }
    slot.entry = entry;
    this.#bytes += growth;
    if (entry.evictable) this.#counters.add(slot);
    else if (previous?.evictable) this.#counters.remove(slot);
  }

  /** @returns whether there was something to drop */
  drop(slot: Slot): boolean {
    if (!this.#empty(slot)) return false;
    this.#vacant += 1;
    if (this.#vacant > FEWEST_VACANT && this.#vacant > this.#slots.size / 2) this.#clearVacant();
    return true;
  }

  /** Drops everything that has expired. */
  sweep(now: number): void {
    for (const slot of this.#slots.values()) {
      if (slot.entry && slot.entry.expiresAt <= now && this.#empty(slot)) this.#vacant += 1;
    }
    this.#clearVacant();
  }

  #empty(slot: Slot): boolean {
    const { entry } = slot;
    if (!entry) return false;
    this.#bytes -= sizeOf(slot, entry);
    if (entry.evictable) this.#counters.remove(slot);
    slot.entry = undefined;
    return true;
  }

  /** Takes as long as there are slots, but is due only after half as many have been emptied. */
  #clearVacant(): void {
    for (const slot of this.#slots.values()) if (!slot.entry) this.#remove(slot);
    this.#vacant = 0;
  }

  #remove(slot: Slot): void {
    this.#slots.delete(slot.key);
    slot.placed = false;
  }

  #lacksRoom(growth: number, keys: number): boolean {
    return (
      (keys > 0 && this.size + keys > this.maxKeys) ||
      (growth > 0 && this.#bytes + growth > this.maxBytes)
    );
  }

  #makeRoom(growth: number, keys: number, now: number, forSlot: Slot): void {
    if (now - this.#lastFullSweep >= FULL_SWEEP_EVERY_MS) {
      this.#lastFullSweep = now;
      this.sweep(now);
    }
    while (this.#lacksRoom(growth, keys)) {
      const victim = this.#leastFilled(now, forSlot);
      if (!victim) throw new StoreError('full', 'The memory store is full.');
      // Its key is not coming back soon: nobody knows it any more.
      this.#empty(victim);
      this.#remove(victim);
    }
  }

  #leastFilled(now: number, forSlot: Slot): Slot | undefined {
    let victim: Slot | undefined;
    let least = Infinity;
    const looks = Math.min(EVICTION_SAMPLE, this.#counters.size);
    for (let look = 0; look < looks; look++) {
      const slot = this.#counters.next();
      if (!slot?.entry || slot === forSlot) continue;
      if (slot.entry.expiresAt <= now) return slot;
      if (!victim || slot.entry.fill < least) {
        least = slot.entry.fill;
        victim = slot;
      }
    }
    return victim;
  }
}

function sizeOf({ key }: Slot, entry: Entry): number {
  return OVERHEAD_BYTES + key.length * 2 + entry.bytes;
}
