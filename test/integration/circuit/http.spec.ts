import { describe, expect, it } from '@jest/globals';
import {
  Controller,
  Get,
  HttpCode,
  Injectable,
  Logger,
  NotFoundException,
  Param,
  Query,
  Sse,
} from '@nestjs/common';
import { CircuitBreaker, CircuitBreakers, input } from 'nestjs-cmdx';
import { Observable, of } from 'rxjs';
import {
  ADAPTERS,
  type Answer,
  closeAppsAfterEach,
  type HttpApp,
  startHttp,
} from '../../support/http-app.js';

closeAppsAfterEach();

/** A key that must never be seen in an answer. */
const SECRET = 'ada-s3cret@example.com';

@Injectable()
class Upstream {
  sick = false;

  @CircuitBreaker('inner', { minimumCalls: 1, openFor: '90s' })
  async ask(): Promise<string> {
    if (this.sick) throw new Error('connect ECONNREFUSED 10.0.0.7:443');
    return 'well';
  }
}

@Controller()
class Orders {
  runs = 0;

  constructor(private readonly upstream: Upstream) {}

  @Get('orders/:user')
  @CircuitBreaker(input('user'), { minimumCalls: 1, openFor: '89.2s' })
  async orders(@Param('user') _user: string, @Query('how') how: string): Promise<string> {
    this.runs += 1;
    if (how === 'sick') throw new Error('sick');
    if (how === 'missing') throw new NotFoundException();
    return 'orders';
  }

  @Get('skipping/:user')
  @HttpCode(206)
  @CircuitBreaker(input('user'), {
    minimumCalls: 1,
    openFor: '90s',
    onOpen: 'skip',
    name: 'skipping',
  })
  async skipping(
    @Param('user') _user: string,
    @Query('how') how: string,
  ): Promise<string | undefined> {
    this.runs += 1;
    if (how === 'sick') throw new Error('sick');
    return 'orders';
  }

  @Get('inner')
  async inner(): Promise<string> {
    return this.upstream.ask();
  }

  @Sse('events')
  @CircuitBreaker('events', { minimumCalls: 1 })
  events(): Observable<{ data: string }> {
    return of({ data: 'a' }, { data: 'b' });
  }
}

function everythingIn(answer: Answer): string {
  return `${[...answer.headers.entries()].flat().join('\n')}\n${answer.text}`;
}

describe.each(ADAPTERS)('what is a client answered while a breaker is open? (%s)', (adapter) => {
  async function start(): Promise<HttpApp & { orders: Orders; breakers: CircuitBreakers }> {
    Logger.overrideLogger(false);
    const http = await startHttp(adapter, { controllers: [Orders], providers: [Upstream] });
    const { app } = http;
    return { ...http, orders: app.get(Orders), breakers: app.get(CircuitBreakers) };
  }

  it('503, with Retry-After and the public body, and nothing that names the key', async () => {
    const http = await start();
    expect((await http.get(`/orders/${SECRET}?how=sick`)).status).toBe(500);
    const answer = await http.get(`/orders/${SECRET}`);
    expect(answer.status).toBe(503);
    const { retryAfter, ...body } = answer.body as { retryAfter: number };
    expect(body).toEqual({
      statusCode: 503,
      error: 'Service Unavailable',
      message: 'The service is temporarily unavailable.',
      code: 'circuit_open',
    });
    expect(retryAfter).toBeGreaterThan(80);
    expect(retryAfter).toBeLessThanOrEqual(89.2);
    expect(answer.headers.get('retry-after')).toBe(String(Math.ceil(retryAfter)));
    const everything = everythingIn(answer);
    for (const secret of [SECRET, 'cmdx', 'epoch', 'onOpen']) {
      expect(everything).not.toContain(secret);
    }
    expect(http.orders.runs).toBe(1);
  });

  it('202 and what was skipped, where it skips', async () => {
    const http = await start();
    expect((await http.get('/skipping/ada')).status).toBe(206);
    await http.get('/skipping/ada?how=sick');
    const answer = await http.get('/skipping/ada');
    expect(answer.status).toBe(202);
    expect(answer.body).toEqual({
      status: 'skipped',
      code: 'circuit_open',
      retryAfter: expect.any(Number),
    });
    expect(http.orders.runs).toBe(2);
  });

  it('503 without a time, when an operator has forced it open', async () => {
    const http = await start();
    await http.breakers.forceOpen('cmdx:cb:Orders.orders:ada');
    const answer = await http.get('/orders/ada');
    expect(answer.status).toBe(503);
    expect(answer.headers.get('retry-after')).toBeNull();
    expect(answer.body).not.toHaveProperty('retryAfter');
    expect(http.orders.runs).toBe(0);
  });

  it('the same when a service that the handler calls has the breaker', async () => {
    const http = await start();
    http.app.get(Upstream).sick = true;
    expect((await http.get('/inner')).status).toBe(500);
    http.app.get(Upstream).sick = false;
    const answer = await http.get('/inner');
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '90']);
    expect(answer.body).toMatchObject({ code: 'circuit_open' });
  });

  it('as ever for who asks for nothing, of which the breaker learns nothing', async () => {
    const http = await start();
    for (let call = 0; call < 3; call++) {
      expect((await http.get('/orders/ada?how=missing')).status).toBe(404);
    }
    expect(await http.breakers.inspect('cmdx:cb:Orders.orders:ada')).toBeUndefined();
    expect((await http.get('/orders/ada')).text).toBe('orders');
    expect(await http.breakers.inspect('cmdx:cb:Orders.orders:ada')).toMatchObject({
      calls: 1,
      failures: 0,
    });
  });

  it('server-sent events: one call, a success once they have all been sent', async () => {
    const http = await start();
    const answer = await http.get('/events');
    expect(answer.text).toContain('data: b');
    expect(await http.breakers.inspect('cmdx:cb:events')).toMatchObject({ calls: 1, failures: 0 });
    await http.breakers.forceOpen('cmdx:cb:events');
    const refused = await http.get('/events');
    expect(refused.text).not.toContain('data: b');
  });
});
