import { toSeconds } from '../clock/duration.js';
import {
  type BusyMetadata,
  LockBusyError,
  type RefusalMetadata,
  type RefusalSite,
} from '../errors/refusals.js';
import type { HeldLock, Invocation } from '../invocation.js';
import type { EnterStep, LeaseReply, LeaseStep, LeaveStep } from '../store/store.js';
import type { LockAcquiredPayload } from '../telemetry/events.js';
import type { StorePolicy } from './policy.js';

/** A lock's settings after inheritance, defaults and validation. */
export interface LockSettings {
  readonly ttlMs: number;
  readonly waitMs: number;
  readonly onBusy: 'fail' | 'skip';
  readonly onStoreError: 'fail' | 'run';
}

/**
 * Keeps concurrent runs of one key apart: a lease under the key, whose value is the holder's `tid`,
 * for as long as the envelope lasts and at most `ttl`.
 */
export class LockPolicy implements StorePolicy {
  readonly policy = 'lock';
  readonly own = false;
  readonly admittedEvent = 'lock_acquired';
  readonly refusedEvent = 'lock_busy';
  readonly repeatedWhileWaiting = true;

  constructor(private readonly settings: LockSettings) {}

  get onRefusal(): 'fail' | 'skip' {
    return this.settings.onBusy;
  }

  get onStoreError(): 'fail' | 'run' {
    return this.settings.onStoreError;
  }

  get waitMs(): number {
    return this.settings.waitMs;
  }

  request(key: string, invocation: Invocation): LeaseStep {
    return { kind: 'lease', key, token: invocation.tid, ttlMs: this.settings.ttlMs };
  }

  admitted(key: string): LockAcquiredPayload {
    return { lockKey: key };
  }

  refusal(key: string, reply: LeaseReply): BusyMetadata {
    return {
      code: 'busy',
      lockKey: key,
      onBusy: this.settings.onBusy,
      ...(reply.holder !== undefined && { holder: reply.holder }),
      ...(reply.remainingMs !== undefined && { retryAfter: toSeconds(reply.remainingMs) }),
    };
  }

  giveBack(step: EnterStep): LeaveStep {
    const { key, token, ttlMs } = step as LeaseStep;
    return { kind: 'release', key, token, ttlMs };
  }

  held(step: EnterStep): HeldLock {
    return { key: step.key };
  }

  refuse(metadata: RefusalMetadata, site: RefusalSite): LockBusyError {
    return new LockBusyError(metadata as BusyMetadata, site);
  }
}
