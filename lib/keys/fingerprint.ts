import { createHash } from 'node:crypto';
import { types } from 'node:util';
import type { ExecutionContext } from '@nestjs/common';
import { configure } from 'safe-stable-stringify';
import { isThenable } from '../awaitable.js';
import type { Invocation } from '../invocation.js';

/** A digest of what an invocation wants done. */
export interface CompiledFingerprint {
  /** The digest or a promise of it, `undefined` when there is nothing to compare. */
  readonly read: (invocation: Invocation) => unknown;
  /** Whether `read` is known to return a promise. */
  readonly async: boolean;
}

/** How a fingerprint is written, `false` apart. */
type FingerprintSource =
  'request' | ((...args: never[]) => unknown) | { call(invocation: Invocation): unknown };

/** JSON with the names of every object in one order: a body with its fields reordered is the same body. */
const canonicalJson = configure({ deterministic: true, circularValue: TypeError });

export function compileFingerprint(source: FingerprintSource): CompiledFingerprint {
  if (source === 'request') return { read: requestDigest, async: false };
  if (typeof source === 'function') {
    const fn = source as unknown as (...args: unknown[]) => unknown;
    return {
      read: ({ instance, args }) => digestOf(fn.apply(instance, [...args])),
      async: types.isAsyncFunction(fn),
    };
  }
  return {
    read: (invocation) => digestOf(source.call(invocation)),
    async: types.isAsyncFunction(source.call),
  };
}

function digestOf(value: unknown): unknown {
  if (isThenable(value)) return Promise.resolve(value).then(digestOf);
  return value === undefined || value === null ? undefined : digest(value);
}

function digest(value: unknown): string {
  return createHash('sha256')
    .update(String(canonicalJson(value)))
    .digest('base64url');
}

interface RequestLike {
  readonly method?: string;
  /** Express. */
  readonly route?: { readonly path?: unknown };
  /** Fastify. */
  readonly routeOptions?: { readonly url?: unknown };
  readonly params?: unknown;
  readonly query?: unknown;
  readonly body?: unknown;
}

/**
 * Nothing outside a request of HTTP. The class has no part in it: a shared `name` stands for its own,
 * which may be another in each process.
 */
function requestDigest({ context }: Invocation): string | undefined {
  if (context?.getType<string>() !== 'http') return undefined;
  const request: RequestLike = (context as ExecutionContext).getArgByIndex(0);
  const { method, route, routeOptions, params, query, body } = request;
  return digest([method, route?.path ?? routeOptions?.url, params, query, body]);
}
