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
import type { Refused, StorePolicy } from './policy.js';

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
  readonly canReplay = false;
  readonly repeatedWhileWaiting = true;
  readonly admittedOnce = true;

  constructor(private readonly settings: LockSettings) {}

  get canSkip(): boolean {
    return this.settings.onBusy === 'skip';
  }

  get onStoreError(): 'fail' | 'run' {
    return this.settings.onStoreError;
  }

  patienceMs(): number {
    return this.settings.waitMs;
  }

  request(key: string, invocation: Invocation): LeaseStep {
    return { kind: 'lease', key, token: invocation.tid, ttlMs: this.settings.ttlMs };
  }

  admitted(key: string): LockAcquiredPayload {
    return { lockKey: key };
  }

  refusal(key: string, reply: LeaseReply): Refused {
    const metadata: BusyMetadata = {
      code: 'busy',
      lockKey: key,
      onBusy: this.settings.onBusy,
      ...(reply.holder !== undefined && { holder: reply.holder }),
      ...(reply.remainingMs !== undefined && { retryAfter: toSeconds(reply.remainingMs) }),
    };
    return { metadata, event: 'lock_busy', skip: this.canSkip };
  }

  giveBack(step: EnterStep): LeaveStep {
    const { key, token, ttlMs } = step as LeaseStep;
    return { kind: 'release', key, token, ttlMs };
  }

  gaveBack(): undefined {}

  held(step: EnterStep): HeldLock {
    return { key: step.key };
  }

  keptAlive(): undefined {}

  refuse(metadata: RefusalMetadata, site: RefusalSite): LockBusyError {
    return new LockBusyError(metadata as BusyMetadata, site);
  }
}
