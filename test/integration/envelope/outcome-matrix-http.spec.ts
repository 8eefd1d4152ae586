import { describe, expect, it } from '@jest/globals';
import {
  BadGatewayException,
  Body,
  type CallHandler,
  Controller,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
  NotFoundException,
  Param,
  Post,
  UseInterceptors,
} from '@nestjs/common';
import {
  CircuitBreaker,
  type EndingKind,
  fail,
  header,
  IdempotentBy,
  input,
  LockWith,
  OUTCOME_TABLE,
  OutputSchema,
  RateLimit,
  RetryOn,
  skip,
  type TelemetryEventName,
} from 'nestjs-cmdx';
import { delay, map, type Observable, timeout } from 'rxjs';
import { DUE, type Receipt, receiptSchema, tracesOf } from '../../support/all-rings.js';
import { ADAPTERS, closeAppsAfterEach, type HttpApp, startHttp } from '../../support/http-app.js';
import { until } from '../../support/time.js';

closeAppsAfterEach();

class Flaky extends Error {}

/** What an interceptor does with the answer of the body, as the request wants it. */
@Injectable()
class Afterwards implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const request = context.switchToHttp().getRequest<{ headers: Record<string, string> }>();
    const answer = next.handle();
    switch (request.headers['x-afterwards']) {
      case 'fails':
        return answer.pipe(
          map(() => {
            throw new Error('cannot be serialized');
          }),
        );
      case 'gives up':
        return answer.pipe(timeout(20));
      case 'takes long':
        return answer.pipe(delay(150));
      default:
        return answer;
    }
  }
}

type Script = (attempt: number) => unknown;

/** What the body of the next requests does. */
const script: { runs: number; does: Script } = { runs: 0, does: () => undefined };

@Controller('payments')
class PaymentsController {
  @UseInterceptors(Afterwards)
  @Post(':account')
  @RateLimit(input('account'), { max: 5, per: '1m' })
  @CircuitBreaker(input('account'))
  @LockWith(input('account'))
  @IdempotentBy(header('idempotency-key'), { scope: 'shared' })
  @RetryOn(Flaky, { limit: 2, delay: 0 })
  @OutputSchema(receiptSchema)
  async pay(@Param('account') _account: string, @Body() _body: unknown): Promise<Receipt> {
    script.runs += 1;
    return (await script.does(script.runs)) as Receipt;
  }
}

const TASK = 'PaymentsController.pay';
const KEYS = {
  rateLimit: `cmdx:rl:${TASK}:acct_1`,
  circuit: `cmdx:cb:${TASK}:acct_1`,
  lock: `cmdx:lock:${TASK}:acct_1`,
  claim: `cmdx:idem:${TASK}:key_1`,
};

const CLAIMED = [
  'task_started',
  'rate_limit_admitted',
  'lock_acquired',
  'idempotency_claimed',
] as const;

interface Row {
  readonly outcome: string;
  readonly kind: EndingKind;
  readonly does?: Script;
  readonly afterwards?: string;
  readonly status: number;
  readonly body?: object;
  readonly runs: number;
  readonly sample: 'success' | 'failure' | 'ignored';
  readonly claim: 'done' | 'tombstone' | 'free';
  /** What a second request with the same key gets. */
  readonly again: number;
}

const throwing = (make: () => unknown) => (): never => {
  throw make();
};

const ROWS: readonly Row[] = [
  {
    outcome: 'the client is answered',
    kind: 'answered',
    status: 201,
    body: { receipt: 'rc_1' },
    runs: 1,
    sample: 'success',
    claim: 'done',
    again: 201,
  },
  {
    outcome: 'the client is answered after a third attempt',
    kind: 'answered',
    does: (attempt) => {
      if (attempt < 3) throw new Flaky();
      return { receipt: 'rc_3' };
    },
    status: 201,
    body: { receipt: 'rc_3' },
    runs: 3,
    sample: 'success',
    claim: 'done',
    again: 201,
  },
  {
    outcome: 'no answer can be made of what the body returned',
    kind: 'unanswered',
    afterwards: 'fails',
    status: 500,
    runs: 1,
    sample: 'success',
    claim: 'tombstone',
    again: 409,
  },
  {
    outcome: 'nobody waits for the answer any more when the body returns',
    kind: 'unanswered',
    does: () => new Promise((resolve) => setTimeout(resolve, 60, { receipt: 'rc_late' })),
    afterwards: 'gives up',
    status: 500,
    runs: 1,
    sample: 'success',
    claim: 'tombstone',
    again: 409,
  },
  {
    outcome: 'the body returns what its schema refuses',
    kind: 'output_invalid',
    does: () => ({ receipt: 42 }),
    status: 500,
    body: { code: 'output_invalid', message: 'Internal server error' },
    runs: 1,
    sample: 'ignored',
    claim: 'tombstone',
    again: 409,
  },
  {
    outcome: 'skip()',
    kind: 'skipped',
    does: () => skip('closed today', { code: 'closed' }),
    status: 202,
    body: { status: 'skipped', code: 'closed' },
    runs: 1,
    sample: 'ignored',
    claim: 'free',
    again: 201,
  },
  {
    outcome: 'fail()',
    kind: 'failed',
    does: () => fail('no funds', { code: 'no_funds' }),
    status: 422,
    body: { code: 'no_funds', message: 'no funds' },
    runs: 1,
    sample: 'ignored',
    claim: 'free',
    again: 201,
  },
  {
    outcome: 'an HttpException below 500',
    kind: 'client_error',
    does: throwing(() => new NotFoundException()),
    status: 404,
    runs: 1,
    sample: 'ignored',
    claim: 'free',
    again: 201,
  },
  {
    outcome: 'an HttpException of 500 or more',
    kind: 'threw',
    does: throwing(() => new BadGatewayException()),
    status: 502,
    runs: 1,
    sample: 'failure',
    claim: 'free',
    again: 201,
  },
  {
    outcome: 'an error, however often the body is repeated',
    kind: 'threw',
    does: throwing(() => new Flaky()),
    status: 500,
    runs: 3,
    sample: 'failure',
    claim: 'free',
    again: 201,
  },
];

const AFTER_A_PROBE = {
  success: { state: 'closed', told: ['circuit_closed'] },
  failure: { state: 'open', told: ['circuit_opened'] },
  ignored: { state: 'half_open', told: [] },
} as const;

describe.each(ADAPTERS)('what does an answer leave behind, on %s?', (adapter) => {
  async function ask(row: Row, probe: boolean) {
    const http = await startHttp(adapter, { controllers: [PaymentsController] });
    if (probe) await http.store.set(KEYS.circuit, DUE, { ttl: '1h' });
    script.runs = 0;
    script.does = row.does ?? (() => ({ receipt: 'rc_1' }));
    const answer = await pay(http, row.afterwards);
    await until(() => http.telemetry.names.includes('task_executed'), 'the end of the body');
    return { http, answer };
  }

  const pay = (http: HttpApp, afterwards = '') =>
    http.post(
      '/payments/acct_1',
      { amount: 5 },
      {
        'idempotency-key': 'key_1',
        'x-afterwards': afterwards,
      },
    );
  const traces = ({ app, store }: HttpApp) =>
    tracesOf({ get: (token) => app.get(token), store }, KEYS);

  it.each(ROWS.map((row) => [row.outcome, row] as const))('%s', async (_outcome, row) => {
    const { http, answer } = await ask(row, false);
    expect(answer.status).toBe(row.status);
    if (row.body) expect(answer.body).toMatchObject(row.body);
    expect(script.runs).toBe(row.runs);
    expect(http.telemetry.names).toEqual([
      ...CLAIMED,
      ...Array.from({ length: row.runs - 1 }, (): TelemetryEventName => 'task_retried'),
      'task_executed',
    ]);
    expect(await traces(http)).toEqual({
      quota: 1,
      circuit: 'closed',
      calls: row.sample === 'ignored' ? 0 : 1,
      failures: row.sample === 'failure' ? 1 : 0,
      lease: undefined,
      claim: row.claim === 'free' ? undefined : row.claim,
      claimedBy: row.claim === 'free' ? undefined : http.telemetry.events[0]?.tid,
    });

    script.does = () => ({ receipt: 'rc_2' });
    const again = await pay(http);
    expect(again.status).toBe(row.again);
    const replayed = row.claim === 'done';
    expect(again.headers.get('idempotent-replayed')).toBe(replayed ? 'true' : null);
    if (replayed) expect(again.body).toEqual(answer.body);
    expect(script.runs).toBe(row.runs + (row.claim === 'free' ? 1 : 0));
  });

  it.each(ROWS.map((row) => [row.outcome, row] as const))(
    'of a probe: %s',
    async (_outcome, row) => {
      const { http } = await ask(row, true);
      const { state, told } = AFTER_A_PROBE[row.sample];
      expect(await traces(http)).toMatchObject({ circuit: state, quota: 1, lease: undefined });
      const { names } = http.telemetry;
      expect(names.slice(0, 4)).toEqual([
        'task_started',
        'rate_limit_admitted',
        'circuit_half_opened',
        'lock_acquired',
      ]);
      expect(names.filter((name) => name.startsWith('circuit_')).slice(1)).toEqual(told);
    },
  );

  it('the probe is not over before its answer has been made', async () => {
    const http = await startHttp(adapter, { controllers: [PaymentsController] });
    await http.store.set(KEYS.circuit, DUE, { ttl: '1h' });
    script.runs = 0;
    script.does = () => ({ receipt: 'rc_1' });
    const probe = pay(http, 'takes long');
    await until(() => script.runs === 1, 'the body');
    const other = await http.post('/payments/acct_1', {}, { 'idempotency-key': 'key_2' });
    expect(other).toMatchObject({ status: 503, body: { code: 'circuit_open' } });
    expect(Number(other.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    expect(await traces(http)).toMatchObject({ circuit: 'half_open', claim: 'in_progress' });
    expect(await probe).toMatchObject({ status: 201 });
    expect(await traces(http)).toMatchObject({ circuit: 'closed', claim: 'done' });
  });
});

describe('does the code say the same in its outcome table?', () => {
  it.each(ROWS.map((row) => [row.outcome, row] as const))('%s', (_outcome, row) => {
    const claims = { done: 'keep', tombstone: 'tombstone', free: 'drop' } as const;
    expect(OUTCOME_TABLE[row.kind]).toMatchObject({
      sample: row.sample,
      claim: claims[row.claim],
      quota: 'charged',
    });
  });
});
