import { describe, expect, it } from '@jest/globals';
import { Controller, HttpCode, Post, Res } from '@nestjs/common';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { header, IdempotentBy } from 'nestjs-cmdx';
import { ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { byUser, deliverTwice, isReplay, keyed } from '../../support/http-idempotency.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeAppsAfterEach();
refuseUnhandledRejections();

@Controller('accounts')
class Accounts {
  runs = 0;

  @Post()
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async open(): Promise<object> {
    this.runs += 1;
    return { run: this.runs, password: 'hunter2', opened: new Date(0), balance: 5n };
  }

  @Post('away')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async away(@Res({ passthrough: true }) response: { status(code: number): unknown }) {
    this.runs += 1;
    if (this.runs === 1) response.status(503);
    return { run: this.runs };
  }

  @Post('broken')
  @HttpCode(500)
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async broken(): Promise<object> {
    this.runs += 1;
    return { run: this.runs };
  }
}

describe('what does the json replacer of Express do to a kept answer?', () => {
  it('the same as to what was sent: what it takes out is not in the store', async () => {
    const http = await startHttp('express', {
      controllers: [Accounts],
      setUp: (app) =>
        (app as NestExpressApplication).set('json replacer', (name: string, value: unknown) => {
          if (name === 'password') return undefined;
          return typeof value === 'bigint' ? `${value} EUR` : value;
        }),
    });
    const { first, again } = await deliverTwice(http, '/accounts', keyed('k'));
    expect(first.body).toEqual({ run: 1, opened: '1970-01-01T00:00:00.000Z', balance: '5 EUR' });
    expect(again.text).toBe(first.text);
    expect(isReplay(again)).toBe(true);
    const kept = await http.store.get('cmdx:idem:Accounts.open:ada:k');
    expect(kept).toContain('5 EUR');
    expect(kept).not.toContain('hunter2');
  });
});

describe.each(ADAPTERS)('is an answer of 500 and above kept? (%s)', (adapter) => {
  it('no: the server says that it has failed, so the next delivery runs', async () => {
    const http = await startHttp(adapter, { controllers: [Accounts] });
    const { first, again } = await deliverTwice(http, '/accounts/away', keyed('k'));
    expect([first.status, again.status]).toEqual([503, 201]);
    expect(again.body).toEqual({ run: 2 });
    expect(isReplay(again)).toBe(false);
    const third = await http.post('/accounts/away', {}, keyed('k'));
    expect([third.status, third.body, isReplay(third)]).toEqual([201, { run: 2 }, true]);
  });

  it('nor one whose status is written on the handler', async () => {
    const http = await startHttp(adapter, { controllers: [Accounts] });
    const { first, again } = await deliverTwice(http, '/accounts/broken', keyed('k'));
    expect([first.body, again.body]).toEqual([{ run: 1 }, { run: 2 }]);
  });
});
