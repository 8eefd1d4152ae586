import type { AbstractHttpAdapter } from '@nestjs/core';
import { retryAfterOf } from '../errors/refusals.js';

/** How a skipped call is answered. */
export const SKIPPED_STATUS = 202;

/** What a client is told of a skipped call. */
export interface SkippedBody {
  readonly status: 'skipped';
  readonly code: string;
  /** Seconds. */
  readonly retryAfter?: number;
}

/** @param metadata of the refusal, or what the body gave to `skip()` */
export function skippedBody(metadata: Readonly<Record<string, unknown>>): SkippedBody {
  const { code } = metadata;
  const retryAfter = retryAfterOf(metadata);
  return {
    status: 'skipped',
    code: typeof code === 'string' ? code : 'skipped',
    ...(typeof retryAfter === 'number' && { retryAfter }),
  };
}

/** Writes `Retry-After` as RFC 9110 section 10.2.3 wants it: whole seconds, at least 1, rounded up. */
export function setRetryAfter(
  adapter: AbstractHttpAdapter,
  response: unknown,
  seconds: number | undefined,
): void {
  if (seconds === undefined || adapter.isHeadersSent(response)) return;
  adapter.setHeader(response, 'Retry-After', String(Math.max(1, Math.ceil(seconds))));
}
