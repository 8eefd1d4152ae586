import { Bag, type Bagged } from '../bag.js';
import { type Clock, every } from '../clock/clock.js';
import { outside } from '../process-wide.js';
import type { Hold } from '../store/store.js';

/** A claim is renewed so often within its lease: two renewals may fail before it runs out. */
const BEATS_PER_LEASE = 3;
const BATCH = 100;

/** One claim that is kept alive. */
export interface Beat extends Bagged {
  readonly hold: Hold;
  readonly onLost: () => void;
  /** When it is due, on the clock. */
  dueAt: number;
  /** Whether its owner is giving it back: then it is lost to nobody. */
  leaving: boolean;
}

/**
 * Renews all claims of one application with one timer, in batches. The timer does not keep the
 * process alive, and stops when there is nothing to renew.
 */
export class Heartbeat {
  readonly #beats = new Bag<Beat>();
  #periodMs = Infinity;
  #stop: (() => void) | undefined;
  #renewing = false;
  #stopped = false;

  /** @param renew asks the store; rejects when it does not answer, which says nothing about a claim */
  constructor(
    private readonly clock: Clock,
    private readonly renew: (holds: readonly Hold[]) => Promise<readonly boolean[]>,
  ) {}

  /** @param onLost told once, when the store says that the claim is somebody else's */
  keep(hold: Hold, onLost: () => void): Beat {
    const periodMs = hold.leaseMs / BEATS_PER_LEASE;
    const beat = { hold, onLost, dueAt: this.clock.now() + periodMs, leaving: false, at: -1 };
    this.#beats.add(beat);
    if (periodMs < this.#periodMs && !this.#stopped) this.#restart(periodMs);
    return beat;
  }

  drop(beat: Beat): void {
    this.#beats.remove(beat);
  }

  /** For good: what is asked to be kept from now on lapses. */
  stop(): void {
    this.#stopped = true;
    this.#beats.clear();
    this.#pause();
  }

  #restart(periodMs: number): void {
    this.#stop?.();
    this.#periodMs = periodMs;
    this.#stop = outside(() => every(this.clock, periodMs, this.#tick));
  }

  #pause(): void {
    this.#stop?.();
    this.#stop = undefined;
    this.#periodMs = Infinity;
  }

  readonly #tick = (): void => {
    if (this.#beats.size === 0) this.#pause();
    else if (!this.#renewing) void this.#renewDue();
  };

  async #renewDue(): Promise<void> {
    this.#renewing = true;
    // What is due before the next tick is renewed now.
    const nextTick = this.clock.now() + this.#periodMs;
    const due = [...this.#beats].filter((beat) => beat.dueAt < nextTick);
    for (let from = 0; from < due.length; from += BATCH) {
      await this.#renewBatch(due.slice(from, from + BATCH));
    }
    this.#renewing = false;
  }

  async #renewBatch(beats: readonly Beat[]): Promise<void> {
    let kept: readonly boolean[];
    try {
      kept = await this.renew(beats.map(({ hold }) => hold));
    } catch {
      return;
    }
    // Without an answer it is not known whose the claims are. The next tick asks again.
    if (!Array.isArray(kept) || kept.length !== beats.length) return;
    const now = this.clock.now();
    for (const [position, beat] of beats.entries()) {
      if (kept[position] !== false) beat.dueAt = now + beat.hold.leaseMs / BEATS_PER_LEASE;
      else if (this.#beats.remove(beat) && !beat.leaving) beat.onLost();
    }
  }
}
