import type { EventEmitter } from 'node:events';
import { type ArgumentsHost, Catch } from '@nestjs/common';
import { BaseExceptionFilter, HttpAdapterHost } from '@nestjs/core';
import { RefusalError } from '../errors/refusals.js';
import { publicFacts, setRetryAfter } from './http.js';

/**
 * Answers refusals wherever the user has no filter of his own: Nest's own answer for an
 * `HttpException`, plus `Retry-After`. Over a socket it tells the client as Nest's own filter does;
 * elsewhere it leaves the error to the transport.
 */
@Catch(RefusalError)
export class RefusalFilter extends BaseExceptionFilter {
  constructor(protected override readonly httpAdapterHost: HttpAdapterHost) {
    super();
  }

  override catch(exception: RefusalError, host: ArgumentsHost): void {
    const adapter = this.httpAdapterHost.httpAdapter;
    const type = host.getType<string>();
    if (type === 'http' && adapter) {
      setRetryAfter(adapter, host.getArgByIndex(1), exception);
      super.catch(exception, host);
    } else if (type === 'ws') {
      const client: Partial<EventEmitter> = host.switchToWs().getClient();
      client.emit?.('exception', { status: 'error', ...publicFacts(exception) });
    }
  }
}
