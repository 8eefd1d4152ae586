import { toSeconds } from '../clock/duration.js';
import {
  RateLimitedError,
  type RateLimitedMetadata,
  type RefusalMetadata,
  type RefusalSite,
} from '../errors/refusals.js';
import type { Invocation } from '../invocation.js';
import type { EnterStep, FixedWindowReply, LeakyBucketReply, Store } from '../store/store.js';
import type { RateLimitAdmittedPayload } from '../telemetry/events.js';
import {
  type Admission,
  assertAdmission,
  type BuiltInLimiter,
  type Limiter,
} from './limiters/limiter.js';
import type { RateLimitOptions } from './options.js';
import type { Decision, OwnPolicy, Refused, StorePolicy } from './policy.js';

/** A rate limit's settings after inheritance, defaults and validation. */
export interface RateLimitSettings {
  readonly max: number;
  readonly perMs: number;
  readonly cost: number;
  readonly onLimit: 'fail' | 'skip';
  readonly onStoreError: 'fail' | 'run';
}

/** Counts starts at the door with one of the built-in limiters. Nothing is refunded. */
export class RateLimitPolicy implements StorePolicy {
  readonly policy = 'rateLimit';
  readonly own = false;
  readonly admittedEvent = 'rate_limit_admitted';
  readonly canReplay = false;
  readonly repeatedWhileWaiting = false;
  readonly admittedOnce = true;
  readonly #perUs: number;
  readonly #capacityUs: number;
  readonly #costUs: number;

  constructor(
    private readonly limiter: BuiltInLimiter,
    private readonly settings: RateLimitSettings,
  ) {
    this.#perUs = settings.perMs * 1_000;
    this.#capacityUs = settings.max * this.#perUs;
    this.#costUs = wholeMicroseconds(settings.cost * this.#perUs);
  }

  get canSkip(): boolean {
    return this.settings.onLimit === 'skip';
  }

  get onStoreError(): 'fail' | 'run' {
    return this.settings.onStoreError;
  }

  patienceMs(): number {
    return 0;
  }

  request(key: string): EnterStep {
    return this.limiter === 'fixed_window'
      ? { kind: 'fixed_window', key, max: this.settings.max, windowMs: this.settings.perMs }
      : {
          kind: 'leaky_bucket',
          key: `${key}:lb`,
          capacityUs: this.#capacityUs,
          costUs: this.#costUs,
        };
  }

  admitted(key: string, reply: FixedWindowReply | LeakyBucketReply): RateLimitAdmittedPayload {
    return facts(key, this.limiter, this.settings, this.#toAdmission(reply));
  }

  refusal(key: string, reply: FixedWindowReply | LeakyBucketReply): Refused {
    return denial(key, this.limiter, this.settings, this.#toAdmission(reply));
  }

  giveBack(): undefined {}

  gaveBack(): undefined {}

  held(): undefined {}

  keptAlive(): undefined {}

  refuse(metadata: RefusalMetadata, site: RefusalSite): RateLimitedError {
    return new RateLimitedError(metadata as RateLimitedMetadata, site);
  }

  #toAdmission(reply: FixedWindowReply | LeakyBucketReply): Admission {
    const { admitted } = reply;
    const waitMs = reply.kind === 'fixed_window' ? reply.remainingMs : reply.retryMs;
    // Nothing is ever admitted where nothing is allowed, so there is no time to name.
    const retryAfter = admitted || this.settings.max === 0 ? undefined : toSeconds(waitMs);
    return reply.kind === 'fixed_window'
      ? { admitted, count: reply.count, retryAfter }
      : { admitted, level: reply.levelUs / this.#perUs, retryAfter };
  }
}

/** Asks a limiter that the application wrote. */
export class CustomRateLimitPolicy implements OwnPolicy {
  readonly policy = 'rateLimit';
  readonly own = true;
  readonly admittedEvent = 'rate_limit_admitted';
  readonly canReplay = false;

  constructor(
    private readonly name: string,
    private readonly limiter: Limiter,
    private readonly settings: RateLimitSettings,
    private readonly options: Readonly<RateLimitOptions>,
  ) {}

  get canSkip(): boolean {
    return this.settings.onLimit === 'skip';
  }

  get onStoreError(): 'fail' | 'run' {
    return this.settings.onStoreError;
  }

  /** @throws LimiterError when the limiter answers no admission */
  async decide(key: string, invocation: Invocation, store: Store): Promise<Decision> {
    const { max, perMs, cost } = this.settings;
    const quota = Object.freeze({
      task: invocation.task,
      invocation,
      storeKey: key,
      max,
      per: toSeconds(perMs),
      cost,
      limiter: this.name,
      options: this.options,
      store,
    });
    const answer = await this.limiter.call(invocation.instance, quota);
    const admission = assertAdmission(answer, this.name, invocation.task);
    return admission.admitted
      ? { admitted: true, payload: facts(key, this.name, this.settings, admission) }
      : { admitted: false, refused: denial(key, this.name, this.settings, admission) };
  }

  refuse(metadata: RefusalMetadata, site: RefusalSite): RateLimitedError {
    return new RateLimitedError(metadata as RateLimitedMetadata, site);
  }
}

/**
 * Rounded up, so that no start is cheaper than written; but 3.74 units of 35 ms are 130,900
 * microseconds, although floating point makes a little more of them.
 */
function wholeMicroseconds(us: number): number {
  return Math.ceil(Number(us.toFixed(3)));
}

function facts(
  key: string,
  limiter: string,
  settings: RateLimitSettings,
  admission: Admission,
): RateLimitAdmittedPayload {
  return {
    rateLimitKey: key,
    limiter: admission.limiter ?? limiter,
    max: settings.max,
    per: toSeconds(settings.perMs),
    ...present('count', admission.count),
    ...present('level', admission.level),
    ...present('retryAfter', admission.retryAfter),
  };
}

function denial(
  key: string,
  limiter: string,
  settings: RateLimitSettings,
  admission: Admission,
): Refused {
  const metadata: RateLimitedMetadata = {
    code: 'rate_limited',
    onLimit: settings.onLimit,
    ...facts(key, limiter, settings, admission),
  };
  return { metadata, event: 'rate_limit_exceeded', skip: settings.onLimit === 'skip' };
}

/** A custom limiter's `Infinity` or `NaN` is no time to name and no count. */
function present<K extends string>(
  name: K,
  value: number | null | undefined,
): { [P in K]?: number } {
  return Number.isFinite(value) ? ({ [name]: value } as { [P in K]: number }) : {};
}
