import { outside } from '../../process-wide.js';
import type { ReturnStep } from './step-codec.js';

const MOST_HOLDS = 1_000;
const BATCH = 100;
const RETRY_AFTER_MS = 500;

interface Hold {
  readonly step: ReturnStep;
  /** When its own ttl has passed (`performance.now()`); sending it again is pointless then. */
  readonly until: number;
}

/**
 * What may still stand in the store although nobody holds it: after an `enter` whose answer was
 * lost, a `leave` that failed. It is given back by token, and a claim that is done is told to be, as
 * soon as the store answers.
 */
export class UnreturnedHolds {
  readonly #holds = new Map<string, Hold>();
  #draining: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  /** @param send gives some of them back; rejects when that did not work */
  constructor(private readonly send: (steps: readonly ReturnStep[]) => Promise<unknown>) {}

  get size(): number {
    return this.#holds.size;
  }

  add(steps: readonly ReturnStep[]): void {
    const now = performance.now();
    for (const step of steps) {
      const id = idOf(step);
      this.#holds.delete(id);
      this.#holds.set(id, { step, until: now + step.ttlMs });
    }
    this.#makeRoom();
    if (this.#holds.size > 0) this.#drainSoon(0);
  }

  /** A token that asks for its hold again wants to keep it. */
  forget(step: { readonly key: string; readonly token: string }): void {
    if (this.#holds.size > 0) this.#holds.delete(idOf(step));
  }

  /** Gives back what it can; what fails is tried again later. Never rejects. */
  drain(): Promise<void> {
    this.#draining ??= outside(() => this.#drain()).finally(() => {
      this.#draining = undefined;
      if (this.#holds.size > 0) this.#drainSoon(RETRY_AFTER_MS);
    });
    return this.#draining;
  }

  /** No more tries of its own. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /**
   * The oldest go first, and what is done last of all: a lease that is not given back only stands
   * until its ttl, but work that is not told to be done may be done again.
   */
  #makeRoom(): void {
    for (const [id, { step }] of this.#holds) {
      if (this.#holds.size <= MOST_HOLDS) return;
      if (step.kind !== 'complete') this.#holds.delete(id);
    }
    for (const oldest of this.#holds.keys()) {
      if (this.#holds.size <= MOST_HOLDS) return;
      this.#holds.delete(oldest);
    }
  }

  async #drain(): Promise<void> {
    for (let batch = this.#nextBatch(); batch.length > 0; batch = this.#nextBatch()) {
      try {
        await this.send(batch.map(([, hold]) => hold.step));
      } catch {
        // What cannot be told comes last next time, so that it does not stand before the others.
        for (const [id, hold] of batch) this.#moveToEnd(id, hold);
        return;
      }
      for (const [id, hold] of batch) {
        if (this.#holds.get(id) === hold) this.#holds.delete(id);
      }
    }
  }

  #moveToEnd(id: string, hold: Hold): void {
    if (this.#holds.get(id) !== hold) return;
    this.#holds.delete(id);
    this.#holds.set(id, hold);
  }

  #nextBatch(): [string, Hold][] {
    const now = performance.now();
    for (const [id, hold] of this.#holds) if (hold.until <= now) this.#holds.delete(id);
    return [...this.#holds].slice(0, BATCH);
  }

  #drainSoon(ms: number): void {
    if (this.#stopped || this.#draining) return;
    clearTimeout(this.#timer);
    this.#timer = outside(() => setTimeout(() => this.drain(), ms).unref());
  }
}

function idOf(step: { readonly key: string; readonly token: string }): string {
  return JSON.stringify([step.key, step.token]);
}
