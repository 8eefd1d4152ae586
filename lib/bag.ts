/** Something that knows where it stands in its bag; `-1` while it is in none. */
export interface Bagged {
  at: number;
}

/**
 * Things in no order. To add one, to remove it and to go on to the next are constant work and leave
 * nothing behind, which a Set that few things pass through quickly does not manage: it is copied
 * again and again.
 */
export class Bag<T extends Bagged> implements Iterable<T> {
  readonly #all: T[] = [];
  #cursor = 0;

  get size(): number {
    return this.#all.length;
  }

  /** What is in it already stays where it is. */
  add(thing: T): void {
    if (this.has(thing)) return;
    thing.at = this.#all.length;
    this.#all.push(thing);
  }

  has(thing: T): boolean {
    return this.#all[thing.at] === thing;
  }

  /** @returns whether it was there */
  remove(thing: T): boolean {
    if (!this.has(thing)) return false;
    const last = this.#all.pop() as T;
    if (last !== thing) {
      this.#all[thing.at] = last;
      last.at = thing.at;
    }
    thing.at = -1;
    return true;
  }

  clear(): void {
    for (const thing of this.#all) thing.at = -1;
    this.#all.length = 0;
  }

  /** Walks round and round, so that in the end everything is seen. */
  next(): T | undefined {
    this.#cursor = this.#cursor + 1 < this.#all.length ? this.#cursor + 1 : 0;
    return this.#all[this.#cursor];
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#all[Symbol.iterator]();
  }
}
