import { Injectable } from '@nestjs/common';
import { CircuitBreaker } from '../../../lib/index.js';

export const KEY = 'cmdx:cb:upstream';
export const OPEN_MS = 300;
export const PROBE_MS = 1_000;

/** What several processes call; on one breaker, which two failures open. */
@Injectable()
export class Upstream {
  runs = 0;
  body: () => unknown = () => 'well';

  @CircuitBreaker('upstream', {
    minimumCalls: 2,
    openFor: `${OPEN_MS}ms`,
    maxOpenFor: `${OPEN_MS}ms`,
    probeTimeout: `${PROBE_MS}ms`,
  })
  async call(): Promise<unknown> {
    this.runs += 1;
    return this.body();
  }

  @CircuitBreaker('tolerant', { minimumCalls: 1, onStoreError: 'run' })
  async tolerant(): Promise<unknown> {
    this.runs += 1;
    return this.body();
  }
}
