import { beforeEach, describe, expect, it } from '@jest/globals';
import { Body, Controller, Injectable, Param, ParseIntPipe, Post } from '@nestjs/common';
import {
  CircuitBreaker,
  CircuitBreakers,
  header,
  IdempotentBy,
  input,
  LockWith,
  OutputSchema,
  RateLimit,
  RetryOn,
} from 'nestjs-cmdx';
import { PROBED, type Receipt, receiptSchema } from '../../support/all-rings.js';
import {
  ADAPTERS,
  type Answer,
  closeAppsAfterEach,
  type HttpApp,
  startHttp,
} from '../../support/http-app.js';

closeAppsAfterEach();

class Flaky extends Error {}

const bank = { runs: 0, down: false };

async function transfer(): Promise<Receipt> {
  bank.runs += 1;
  if (bank.down) throw new Flaky('the bank is down');
  return { receipt: `rc_${bank.runs}` };
}

@Injectable()
class Bank {
  /** The service is guarded, too: with the same breaker as the handlers. */
  @CircuitBreaker('bank', { minimumCalls: 2, openFor: '20s' })
  async transfer(): Promise<Receipt> {
    return transfer();
  }
}

const CIRCUIT = 'cmdx:cb:bank';

/** Every ring is written on the class. */
@RateLimit(input('account'), { max: 4, per: '1m', name: 'payments' })
@CircuitBreaker('bank', { minimumCalls: 2, openFor: '20s' })
@LockWith(input('account'), { name: 'account' })
@IdempotentBy(header('idempotency-key'), { scope: 'shared', name: 'payments' })
@RetryOn(Flaky, { limit: 1, delay: 0 })
@Controller('payments')
class PaymentsController {
  constructor(readonly service: Bank) {}

  @Post(':account')
  @OutputSchema(receiptSchema)
  async pay(
    @Param('account', ParseIntPipe) _account: number,
    @Body() _body: unknown,
  ): Promise<Receipt> {
    return transfer();
  }

  @Post(':account/silently')
  @RateLimit({ onLimit: 'skip' })
  @CircuitBreaker({ onOpen: 'skip' })
  @LockWith({ onBusy: 'skip' })
  @IdempotentBy({ onDuplicate: 'skip', onInProgress: 'skip' })
  async silently(@Param('account') _account: string): Promise<Receipt | undefined> {
    return transfer();
  }

  /** The handler is refused by nobody; what it calls is. */
  @Post(':account/through')
  @CircuitBreaker(false)
  @LockWith(false)
  @IdempotentBy(false)
  async through(@Param('account') _account: string): Promise<Receipt> {
    return this.service.transfer();
  }
}

beforeEach(() => {
  bank.runs = 0;
  bank.down = false;
});

const key = (value: string): Record<string, string> => ({ 'idempotency-key': value });
const isReplay = ({ headers }: Answer): boolean => headers.get('idempotent-replayed') === 'true';
const FOREVER = { ttl: '1h' } as const;
const IN_PROGRESS = 'p:1:9007199254740991:somebody::';

/** Somebody else was there before: so many starts, or a record. */
async function occupy({ store }: HttpApp, at: string, theirs: string | number): Promise<void> {
  if (typeof theirs === 'number') await store.incr(at, { by: theirs, ...FOREVER });
  else await store.set(at, theirs, FOREVER);
}

describe.each(ADAPTERS)('a handler behind all rings, on %s', (adapter) => {
  const start = (): Promise<HttpApp> =>
    startHttp(adapter, { controllers: [PaymentsController], providers: [Bank] });

  it('a duplicate is refused circuit_open while the circuit is open, and answered again when it is closed', async () => {
    const http = await start();
    const first = await http.post('/payments/1', {}, key('a'));
    expect(first).toMatchObject({ status: 201, body: { receipt: 'rc_1' } });

    // One failure in two calls, after one repetition each.
    bank.down = true;
    expect((await http.post('/payments/1', {}, key('b'))).status).toBe(500);
    expect(bank.runs).toBe(3);
    expect(http.telemetry.of('circuit_opened').map(({ payload }) => payload)).toEqual([
      { circuitKey: CIRCUIT, epoch: expect.any(Number), failureRate: 0.5, retryAfter: 20 },
    ]);

    const refused = await http.post('/payments/1', {}, key('a'));
    expect(refused).toMatchObject({
      status: 503,
      body: {
        statusCode: 503,
        error: 'Service Unavailable',
        code: 'circuit_open',
        retryAfter: expect.any(Number),
      },
    });
    expect(refused.headers.get('retry-after')).toBe('20');
    expect(isReplay(refused)).toBe(false);
    expect(refused.text).not.toContain('cmdx:');

    await http.app.get(CircuitBreakers).reset(CIRCUIT);
    const again = await http.post('/payments/1', {}, key('a'));
    expect(again).toMatchObject({ status: 201, body: { receipt: 'rc_1' } });
    expect(isReplay(again)).toBe(true);
    // The refusal and the replay were charged.
    expect(await http.store.get('cmdx:rl:payments:1')).toBe('4');
    expect(bank.runs).toBe(3);
  });

  it('what a pipe refuses charges nothing, and is no sample', async () => {
    const http = await start();
    expect((await http.post('/payments/abc', {}, key('a'))).status).toBe(400);
    expect(http.telemetry.names).toEqual([]);
    expect(http.store.size).toBe(0);
  });

  it.each([
    ['rate limit', 'cmdx:rl:payments:1', 4, 429, 'rate_limited', true],
    ['circuit breaker', CIRCUIT, PROBED, 503, 'circuit_open', true],
    ['lock', 'cmdx:lock:account:1', 'somebody', 409, 'busy', false],
    ['claim', 'cmdx:idem:payments:a', IN_PROGRESS, 409, 'in_progress', false],
  ])(
    'the %s refuses by status, code and Retry-After',
    async (_ring, at, theirs, status, code, retry) => {
      const http = await start();
      await occupy(http, at, theirs);
      const answer = await http.post('/payments/1', {}, key('a'));
      expect(answer).toMatchObject({ status, body: { statusCode: status, code } });
      expect(answer.headers.has('retry-after')).toBe(retry);
      expect(answer.text).not.toContain('cmdx:');
      expect(answer.text).not.toContain('somebody');
      expect(bank.runs).toBe(0);
    },
  );

  it.each([
    ['rate limit', 'cmdx:rl:payments:1', 4, 'rate_limited'],
    ['circuit breaker', CIRCUIT, PROBED, 'circuit_open'],
    ['lock', 'cmdx:lock:account:1', 'somebody', 'busy'],
    ['claim', 'cmdx:idem:payments:a', IN_PROGRESS, 'in_progress'],
    ['claim', 'cmdx:idem:payments:a', 't:1:0:somebody::', 'duplicate'],
  ])('the %s skips with 202 and its code', async (_ring, at, theirs, code) => {
    const http = await start();
    await occupy(http, at, theirs);
    const answer = await http.post('/payments/1/silently', {}, key('a'));
    expect(answer).toMatchObject({ status: 202, body: { status: 'skipped', code } });
    expect(answer.text).not.toContain('cmdx:');
    expect(bank.runs).toBe(0);
    expect(await http.store.get(at)).toBe(typeof theirs === 'number' ? '5' : theirs);
  });

  it('the refusal of a guarded service passes through a guarded handler: status, code and Retry-After', async () => {
    const http = await start();
    bank.down = true;
    // Two calls of the service, because the handler repeats its body: they open the breaker.
    expect((await http.post('/payments/1/through')).status).toBe(500);
    expect(bank.runs).toBe(2);
    const refused = await http.post('/payments/1/through');
    expect(refused).toMatchObject({ status: 503, body: { code: 'circuit_open' } });
    expect(refused.headers.get('retry-after')).toBe('20');
    // A refusal is not repeated.
    expect(http.telemetry.of('circuit_rejected')).toHaveLength(1);
    // One breaker for both: the handler that shares it is refused by its own.
    const other = await http.post('/payments/1', {}, key('a'));
    expect(other).toMatchObject({ status: 503, body: { code: 'circuit_open' } });
    expect(bank.runs).toBe(2);
  });
});
