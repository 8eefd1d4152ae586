import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { arg, currentInvocation, IdempotentBy, LockWith } from '../../../lib/index.js';

/** Where a body can be kept, or its process be killed. */
export type Point = 'before the effect' | 'after the effect';

export const LEASE_MS = 1_000;

/**
 * Work whose effect is counted outside of it, in Redis and through a connection of its own: whatever
 * becomes of the process, the test knows how often it was done. Processes that share this class
 * share its keys.
 */
@Injectable()
export class Payments {
  /** Whether and for how long a body stays at a point is up to its process. */
  reach: (key: string, point: Point) => Promise<void> = async () => undefined;
  /** The signals of the bodies that have begun. */
  readonly signals = new Map<string, AbortSignal>();

  constructor(private readonly effects: Redis) {}

  @IdempotentBy(arg(0), { lease: '1s', onAbandoned: 'fail' })
  async once(key: string): Promise<string> {
    return this.#pay(key);
  }

  @IdempotentBy(arg(0), { lease: '1s', onAbandoned: 'rerun' })
  async again(key: string): Promise<string> {
    return this.#pay(key);
  }

  @LockWith(arg(0), { ttl: '1h' })
  @IdempotentBy(arg(0), { lease: '1s' })
  async locked(key: string): Promise<string> {
    return this.#pay(key);
  }

  async #pay(key: string): Promise<string> {
    const signal = currentInvocation()?.signal;
    if (signal) this.signals.set(key, signal);
    await this.reach(key, 'before the effect');
    const times = await this.effects.incr(`effects:${key}`);
    await this.reach(key, 'after the effect');
    return `receipt ${times}`;
  }
}

export type Method = 'once' | 'again' | 'locked';

export function idempotencyKey(method: Method, key: string): string {
  return `cmdx:idem:Payments.${method}:${key}`;
}
