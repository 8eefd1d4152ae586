import { createHash } from 'node:crypto';
import { Logger } from '@nestjs/common';
import { describeThrown } from '../errors/reading.js';
import { TELEMETRY_EVENTS, type TelemetryEvent } from './events.js';
import type { Telemetry, TelemetryListener } from './telemetry.js';

export interface LoggerTelemetryOptions {
  /** Print whole store keys instead of a digest. They hold what users are keyed by: e-mails, addresses. */
  readonly keys?: boolean;
}

const WARNINGS: ReadonlySet<string> = new Set([
  'task_retried',
  'rate_limit_exceeded',
  'circuit_opened',
  'circuit_rejected',
  'lock_busy',
  'idempotency_in_progress',
  'idempotency_mismatch',
  'idempotency_abandoned',
  'idempotency_stale',
  'store_error',
]);
/** Where a payload names a store key. */
const KEYS = ['lockKey', 'rateLimitKey', 'idempotencyKey', 'circuitKey'];
/** A run that starts and ends as it should is no news. */
const ROUTINE: ReadonlySet<string> = new Set(['task_started', 'task_executed']);

/**
 * Writes events to Nest's `Logger`: refusals, stale runs and failures of the store as warnings, the
 * rest as debug lines. A duplicate is no warning: that it comes is what the policy is for.
 */
export class LoggerTelemetry implements TelemetryListener {
  readonly #logger = new Logger('Cmdx');
  readonly #keys: boolean;

  constructor(options: LoggerTelemetryOptions = {}) {
    this.#keys = options.keys ?? false;
  }

  listen(telemetry: Telemetry): void {
    for (const name of TELEMETRY_EVENTS) {
      if (!ROUTINE.has(name)) telemetry.subscribe(name, (event) => this.#write(event));
    }
  }

  #write(event: TelemetryEvent): void {
    const line = `${event.name} ${this.#describe(event)}`;
    if (WARNINGS.has(event.name)) this.#logger.warn(line);
    else this.#logger.debug(line);
  }

  #describe(event: TelemetryEvent): string {
    const payload = event.payload as Record<string, unknown>;
    const key = KEYS.map((name) => payload[name]).find((value) => value !== undefined);
    const fields: Record<string, unknown> = {
      task: event.task,
      code: payload['code'],
      limiter: payload['limiter'],
      run: payload['run'],
      attempt: payload['attempt'],
      delay: payload['delay'],
      policy: payload['policy'],
      reason: payload['reason'],
      operation: payload['operation'],
      retryAfter: payload['retryAfter'],
      error: 'error' in payload ? describeThrown(payload['error']) : undefined,
      key: typeof key === 'string' ? this.#showKey(key) : undefined,
      tid: event.tid,
    };
    return Object.entries(fields)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `${name}=${String(value)}`)
      .join(' ');
  }

  #showKey(key: string): string {
    return this.#keys ? key : createHash('sha256').update(key).digest('hex').slice(0, 8);
  }
}
