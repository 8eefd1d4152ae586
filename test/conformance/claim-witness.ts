import { expect } from '@jest/globals';
import type { ClaimReply } from '../../lib/store/store.js';

interface Moment {
  readonly now: number;
  readonly leaseMs: number;
  readonly ttlMs: number;
}

interface Finished {
  readonly run: number;
  readonly outcome: string | undefined;
}

/** What the replies about one key add up to. */
class Testimony {
  /** Who was told to own it, and until when without a renewal. */
  readonly owners = new Map<string, number>();
  /** Of the latest claim, while it has to be remembered. */
  latest = { run: 0, token: '' };
  rememberedUntil = 0;
  done: (Finished & { readonly until: number }) | undefined;
}

/**
 * Believes nothing but the replies of a store: at most one owner at a time, a finished key stays
 * finished until its ttl, and the runs of a key are numbered upwards.
 */
export class ClaimWitness {
  readonly #keys = new Map<string, Testimony>();

  claimed(key: string, token: string, reply: ClaimReply, moment: Moment): void {
    const { now, leaseMs, ttlMs } = moment;
    const testimony = this.#of(key);
    const live = [...testimony.owners].filter(([, until]) => until > now).map(([who]) => who);
    const done = testimony.done && testimony.done.until > now ? testimony.done : undefined;
    if (done && reply.state !== 'mismatch') {
      const state = done.outcome === undefined ? 'tombstone' : 'done';
      expect([reply.state, reply.outcome, reply.run]).toEqual([state, done.outcome, done.run]);
    }
    if (reply.state === 'in_progress') expect(live).toEqual([reply.holder]);
    if (!reply.admitted) return;
    expect(done).toBeUndefined();
    expect(live.filter((who) => who !== token)).toEqual([]);
    if (now < testimony.rememberedUntil) {
      const { latest } = testimony;
      if (latest.token === token) expect(reply.run).toBe(latest.run);
      else expect(reply.run).toBeGreaterThan(latest.run);
    }
    testimony.latest = { run: reply.run, token };
    testimony.done = undefined;
    this.renewed(key, token, { now, leaseMs, ttlMs });
  }

  renewed(key: string, token: string, { now, leaseMs, ttlMs }: Moment): void {
    const testimony = this.#of(key);
    testimony.owners.set(token, now + leaseMs);
    testimony.rememberedUntil = now + leaseMs + ttlMs;
    const live = [...testimony.owners].filter(([, until]) => until > now);
    expect(live.map(([who]) => who)).toEqual([token]);
  }

  /** The owner has given up the key, or was told that it is not its own. */
  ended(key: string, token: string): void {
    this.#of(key).owners.delete(token);
  }

  finished(key: string, { run, outcome }: Finished, until: number): void {
    const testimony = this.#of(key);
    testimony.done = { run, outcome, until };
    testimony.rememberedUntil = until;
  }

  forgotten(key: string): void {
    this.#keys.delete(key);
  }

  #of(key: string): Testimony {
    let testimony = this.#keys.get(key);
    if (!testimony) this.#keys.set(key, (testimony = new Testimony()));
    return testimony;
  }
}
