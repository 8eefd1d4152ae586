import { describe, expect, it } from '@jest/globals';
import {
  Body,
  ClassSerializerInterceptor,
  Controller,
  Header,
  HttpCode,
  Post,
  Redirect,
  Req,
  Res,
  UseInterceptors,
} from '@nestjs/common';
import { APP_INTERCEPTOR, Reflector } from '@nestjs/core';
import { Exclude } from 'class-transformer';
import { fromRequest, header, IdempotentBy } from 'nestjs-cmdx';
import { ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';

closeAppsAfterEach();

const KEY = { 'idempotency-key': 'k-1', 'x-user': 'ada' };
const byUser = fromRequest<{ headers: Record<string, string> }>(
  (request) => request.headers['x-user'],
);

class Receipt {
  @Exclude()
  secret = 'never shown';

  constructor(readonly id: number) {}
}

@Controller('payments')
class Payments {
  runs = 0;

  @Post()
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async create(@Body() body: { amount: number }): Promise<object> {
    this.runs += 1;
    return { run: this.runs, amount: body.amount, at: new Date(0) };
  }

  @Post('void')
  @HttpCode(204)
  @Header('ETag', '"v1"')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async nothing(): Promise<void> {
    this.runs += 1;
  }

  @Post('away')
  @Redirect('/there', 303)
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async away(): Promise<{ url: string }> {
    this.runs += 1;
    return { url: `/there/${this.runs}` };
  }

  @Post('cookie')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async cookie(@Res({ passthrough: true }) response: { header(n: string, v: string): void }) {
    this.runs += 1;
    response.header('Set-Cookie', 'session=ada');
    response.header('Location', `/payments/${this.runs}`);
    return { run: this.runs };
  }

  @Post('receipt')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async receipt(@Req() _request: unknown): Promise<Receipt> {
    this.runs += 1;
    return new Receipt(this.runs);
  }
}

@Controller('decorated')
@UseInterceptors(ClassSerializerInterceptor)
class Decorated extends Payments {}

describe.each(ADAPTERS)('what does a redelivered request get? (%s)', (adapter) => {
  it('the first answer: status, body, headers, and a mark', async () => {
    const { app, post } = await startHttp(adapter, { controllers: [Payments] });
    const first = await post('/payments', { amount: 5 }, KEY);
    const again = await post('/payments', { amount: 5 }, { ...KEY, 'idempotency-key': '"k-1"' });
    expect([first.status, again.status]).toEqual([201, 201]);
    expect(again.text).toBe(first.text);
    expect(first.headers.get('idempotent-replayed')).toBeNull();
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expect(again.headers.get('content-type')).toBe(first.headers.get('content-type'));
    expect(app.get(Payments).runs).toBe(1);
    expect((await post('/payments', { amount: 6 }, KEY)).status).toBe(422);
    const other = await post('/payments', { amount: 5 }, { ...KEY, 'x-user': 'bob' });
    expect(other.body).toMatchObject({ run: 2 });
  });

  it('a void answer, a redirect, the Location but no cookie', async () => {
    const { app, post } = await startHttp(adapter, { controllers: [Payments] });
    for (const path of ['void', 'away', 'cookie']) {
      const first = await post(`/payments/${path}`, {}, { ...KEY, 'idempotency-key': path });
      const again = await post(`/payments/${path}`, {}, { ...KEY, 'idempotency-key': path });
      expect([path, again.status, again.text]).toEqual([path, first.status, first.text]);
      for (const name of ['location', 'etag', 'content-type']) {
        expect([path, name, again.headers.get(name)]).toEqual([
          path,
          name,
          first.headers.get(name),
        ]);
      }
      expect(again.headers.get('set-cookie')).toBeNull();
      expect(again.headers.get('idempotent-replayed')).toBe('true');
    }
    expect(app.get(Payments).runs).toBe(3);
  });

  it.each(['handler', 'module', 'global'])('what a serializer left of it (%s)', async (where) => {
    const { post, store } = await startHttp(adapter, {
      controllers: [where === 'handler' ? Decorated : Payments],
      providers:
        where === 'module'
          ? [{ provide: APP_INTERCEPTOR, useClass: ClassSerializerInterceptor }]
          : [],
      setUp: (app) => {
        if (where === 'global') {
          app.useGlobalInterceptors(new ClassSerializerInterceptor(app.get(Reflector)));
        }
      },
    });
    const [base, task] =
      where === 'handler' ? ['decorated', 'Decorated'] : ['payments', 'Payments'];
    const first = await post(`/${base}/receipt`, {}, KEY);
    const again = await post(`/${base}/receipt`, {}, KEY);
    expect(first.body).toEqual({ id: 1 });
    expect(again.text).toBe(first.text);
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    const kept = await store.get(`cmdx:idem:${task}.receipt:ada:k-1`);
    expect(kept).toContain('{"id":1}');
    expect(kept).not.toContain('secret');
  });
});
