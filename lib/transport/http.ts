import { ServerResponse } from 'node:http';
import type { AbstractHttpAdapter } from '@nestjs/core';
import {
  type PublicRefusalBody,
  type RefusalCode,
  type RefusalError,
  retryAfterOf,
} from '../errors/refusals.js';

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

/**
 * Refusals whose `retryAfter` is a promise to the client. A busy lock's is only the longest it can
 * take, and a client that obeyed it would wait for a lease that is long free.
 */
const ANNOUNCED: ReadonlySet<RefusalCode> = new Set(['rate_limited', 'store_unavailable']);

/** What any client may be told of a refusal, whatever the transport. */
export function publicFacts(
  refusal: RefusalError,
): Pick<PublicRefusalBody, 'message' | 'code' | 'retryAfter'> {
  const { message, code, retryAfter } = refusal.getResponse() as PublicRefusalBody;
  return { message, code, ...(retryAfter !== undefined && { retryAfter }) };
}

/** Writes `Retry-After` as RFC 9110 section 10.2.3 wants it: whole seconds, at least 1, rounded up. */
export function setRetryAfter(
  adapter: AbstractHttpAdapter,
  response: unknown,
  refusal: RefusalError,
): void {
  const seconds = refusal.retryAfter;
  if (seconds === undefined || !ANNOUNCED.has(refusal.code)) return;
  const value = String(Math.max(1, Math.ceil(seconds)));
  if (response instanceof ServerResponse) {
    // A middleware on Fastify has Node's own response, which the adapter of Nest 11 cannot handle.
    if (!response.headersSent) response.setHeader('Retry-After', value);
  } else if (!adapter.isHeadersSent(response)) {
    adapter.setHeader(response, 'Retry-After', value);
  }
}
