import { ServerResponse } from 'node:http';
import type { AbstractHttpAdapter } from '@nestjs/core';
import type { Answer, JsonReplacer } from '../answer.js';
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
 * Refusals whose `retryAfter` is a promise to the client. That of a busy lock, or of work in progress,
 * is what is left of a lease, and says little about when the one who holds it will be done.
 */
const ANNOUNCED: ReadonlySet<RefusalCode> = new Set([
  'rate_limited',
  'circuit_open',
  'store_unavailable',
]);

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

/** The mark of an answer that was given before. */
const REPLAYED_HEADER = 'Idempotent-Replayed';

/**
 * Headers that belong to an answer, whoever gets it when. Never a cookie, a challenge or anything
 * else that was meant for the first client alone; what the server sets for every answer by itself
 * (length, date, CORS) it sets again.
 */
const KEPT_HEADERS = [
  'cache-control',
  'content-disposition',
  'content-encoding',
  'content-language',
  'content-location',
  'content-type',
  'etag',
  'expires',
  'last-modified',
  'link',
  'location',
] as const;

/** What a handler is about to answer, as far as it can be given again: status and headers. */
export function answerHead(
  adapter: AbstractHttpAdapter,
  response: { readonly statusCode: number },
): Pick<Answer, 'status' | 'headers'> {
  const headers: Record<string, string | string[]> = {};
  for (const name of KEPT_HEADERS) {
    const value: string | number | string[] | undefined = adapter.getHeader(response, name);
    if (value !== undefined) headers[name] = Array.isArray(value) ? value : String(value);
  }
  return { status: response.statusCode, headers };
}

/** Express asks the application's `json replacer` about everything that it sends as JSON. */
export function jsonReplacerOf(adapter: AbstractHttpAdapter): JsonReplacer | undefined {
  if (adapter.getType() !== 'express') return undefined;
  const express: { get?: (setting: string) => unknown } = adapter.getInstance();
  const replacer: unknown = express.get?.('json replacer');
  return typeof replacer === 'function' || Array.isArray(replacer)
    ? (replacer as JsonReplacer)
    : undefined;
}

/** Prepares a response for being answered with what was answered before. */
export function replayHead(
  adapter: AbstractHttpAdapter,
  response: unknown,
  { status, headers }: Answer,
): void {
  adapter.status(response, status);
  for (const [name, value] of Object.entries(headers)) {
    // Both adapters take a list, which their common type does not say.
    adapter.setHeader(response, name, value as string);
  }
  adapter.setHeader(response, REPLAYED_HEADER, 'true');
}
