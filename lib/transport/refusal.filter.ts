import { type ArgumentsHost, Catch } from '@nestjs/common';
import { BaseExceptionFilter } from '@nestjs/core';
import { RefusalError } from '../errors/refusals.js';
import { setRetryAfter } from './http.js';

/**
 * Answers refusals wherever the user has no filter of his own: Nest's own answer for an
 * `HttpException`, plus `Retry-After`. Outside HTTP it leaves the error to the transport.
 */
@Catch(RefusalError)
export class RefusalFilter extends BaseExceptionFilter {
  override catch(exception: RefusalError, host: ArgumentsHost): void {
    const adapter = this.httpAdapterHost?.httpAdapter;
    if (host.getType<string>() !== 'http' || !adapter) return;
    setRetryAfter(adapter, host.getArgByIndex(1), exception.retryAfter);
    super.catch(exception, host);
  }
}
