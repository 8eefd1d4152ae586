import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { describe, expect, it } from '@jest/globals';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { RateLimitedError } from 'nestjs-cmdx';
import { setRetryAfter } from '../../../lib/transport/http.js';

const limited = new RateLimitedError(
  {
    code: 'rate_limited',
    rateLimitKey: 'cmdx:rl:Accounts.open',
    limiter: 'fixed_window',
    onLimit: 'fail',
    max: 1,
    per: 60,
    retryAfter: 1.2,
  },
  { task: 'Accounts.open', tid: 'tid' },
);

/** Takes every response for a reply of Fastify, as its adapter does in Nest 11. */
class FastifyAdapterOfNest11 extends FastifyAdapter {
  override isHeadersSent(response: never): boolean {
    return (response as { sent: boolean }).sent;
  }

  override setHeader(response: never, name: string, value: string): void {
    (response as { header(name: string, value: string): void }).header(name, value);
  }
}

describe("does a middleware's own response get Retry-After?", () => {
  const adapters = [new FastifyAdapter(), new FastifyAdapterOfNest11()];

  it.each(adapters)('on %p', (adapter) => {
    const response = new ServerResponse(new IncomingMessage(new Socket()));
    setRetryAfter(adapter as unknown as AbstractHttpAdapter, response, limited);
    expect(response.getHeader('retry-after')).toBe('2');
  });

  it.each(adapters)('not once the headers are sent, on %p', (adapter) => {
    const response = new ServerResponse(new IncomingMessage(new Socket()));
    response.writeHead(200);
    setRetryAfter(adapter as unknown as AbstractHttpAdapter, response, limited);
    expect(response.hasHeader('retry-after')).toBe(false);
  });
});
