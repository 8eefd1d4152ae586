import { describe, expect, it } from '@jest/globals';
import { Body, Controller, Get, Injectable, Param, ParseIntPipe, Post } from '@nestjs/common';
import {
  header,
  IdempotentBy,
  input,
  type InputInvalidError,
  InputSchema,
  LockWith,
  OutputSchema,
  perTask,
  RateLimit,
} from 'nestjs-cmdx';
import * as z from 'zod';
import { ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';

closeAppsAfterEach();

const orderSchema = z.object({ id: z.string('no text'), amount: z.coerce.number('no number') });
type Order = z.output<typeof orderSchema>;

@Injectable()
class Ledger {
  @InputSchema(z.number().positive('not positive'))
  async book(amount: number): Promise<number> {
    return amount;
  }

  @InputSchema(z.array(z.record(z.string(), z.number('no number'))))
  async count(rows: Record<string, number>[]): Promise<number> {
    return rows.length;
  }
}

@Controller('orders')
class Orders {
  runs = 0;
  issues = 0;

  constructor(readonly ledger: Ledger) {}

  @Post()
  @InputSchema(orderSchema)
  @RateLimit(perTask, { max: 1, per: 60 })
  @LockWith(input('id'))
  async place(@Body() order: Order): Promise<object> {
    this.runs += 1;
    return { order, type: typeof order.amount };
  }

  @Get('book/:amount')
  async book(@Param('amount', ParseIntPipe) amount: number): Promise<number> {
    return this.ledger.book(amount);
  }

  @Post('many')
  async many(@Body() rows: unknown[]): Promise<number> {
    try {
      return await this.ledger.count(rows as never);
    } catch (error) {
      this.issues = (error as InputInvalidError).metadata.issues.length;
      throw error;
    }
  }

  @Post('paid/:what')
  @IdempotentBy(header('Idempotency-Key'), { scope: 'shared', fingerprint: false })
  @OutputSchema(z.object({ id: z.string().transform((id) => id.toUpperCase()) }))
  async pay(@Param('what') what: string): Promise<{ id: string }> {
    this.runs += 1;
    const answer = what === 'wrong' ? { id: 5, secret: 'pan 4111' } : { id: what, secret: 'x' };
    return answer as unknown as { id: string };
  }
}

describe.each(ADAPTERS)('what is a client told of schemas (%s)?', (adapter) => {
  const start = () => startHttp(adapter, { controllers: [Orders], providers: [Ledger] });
  const key = { 'idempotency-key': 'k-1' };

  it('400 with all issues, and neither limit nor lock has been touched', async () => {
    const { post, app, telemetry } = await start();
    expect(await post('/orders', { id: 5, amount: 'x' })).toMatchObject({
      status: 400,
      body: {
        statusCode: 400,
        error: 'Bad Request',
        message: ['id: no text', 'amount: no number'],
        code: 'input_invalid',
      },
    });
    expect(telemetry.names).toEqual(['task_started', 'task_executed']);
    expect(await post('/orders', { id: 'a', amount: '5', more: 1 })).toMatchObject({
      status: 201,
      body: { order: { id: 'a', amount: 5 }, type: 'number' },
    });
    expect((await post('/orders', { id: 'a', amount: 5 })).status).toBe(429);
    expect((await post('/orders', { id: 5 })).status).toBe(400);
    expect(app.get(Orders).runs).toBe(1);
  });

  it('no more of many issues, or of a long one, than a person reads: the error has them all', async () => {
    const { post, app } = await start();
    const response = await post(
      '/orders/many',
      Array.from({ length: 5_000 }, () => ({ x: 'y' })),
    );
    expect(response.status).toBe(400);
    const { message } = response.body as { message: string[] };
    expect(message).toHaveLength(21);
    expect(message[0]).toBe('0.x: no number');
    expect(message[20]).toBe('and 4980 more');
    expect(app.get(Orders).issues).toBe(5_000);
    const long = await post('/orders/many', [{ ['x'.repeat(5_000)]: 'y' }]);
    expect(
      Math.max(...(long.body as { message: string[] }).message.map(({ length }) => length)),
    ).toBe(200);
  });

  it('the same when a service behind the handler refuses its input', async () => {
    const { get } = await start();
    expect(await get('/orders/book/5')).toMatchObject({ status: 200, body: 5 });
    expect(await get('/orders/book/0')).toMatchObject({
      status: 400,
      body: { message: ['not positive'], code: 'input_invalid' },
    });
  });

  it('what the output schema made of the answer, at first and when it is given again', async () => {
    const { post, app } = await start();
    const first = await post('/orders/paid/r-1', {}, key);
    expect([first.status, first.text]).toEqual([201, '{"id":"R-1"}']);
    const again = await post('/orders/paid/r-2', {}, key);
    expect([again.status, again.text]).toEqual([201, '{"id":"R-1"}']);
    expect(again.headers.get('Idempotent-Replayed')).toBe('true');
    expect(app.get(Orders).runs).toBe(1);
  });

  it('500 without any detail of an output that does not fit; the work is not done again', async () => {
    const { post, app } = await start();
    const answer = await post('/orders/paid/wrong', {}, key);
    expect(answer).toMatchObject({
      status: 500,
      body: {
        statusCode: 500,
        error: 'Internal Server Error',
        message: 'Internal server error',
        code: 'output_invalid',
      },
    });
    expect(Object.keys(answer.body as object)).toHaveLength(4);
    expect(await post('/orders/paid/r-1', {}, key)).toMatchObject({
      status: 409,
      body: { code: 'duplicate' },
    });
    expect(app.get(Orders).runs).toBe(1);
  });
});
