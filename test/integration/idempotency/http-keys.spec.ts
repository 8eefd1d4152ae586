import { request as rawRequest } from 'node:http';
import { describe, expect, it } from '@jest/globals';
import {
  Body,
  Controller,
  Get,
  Param,
  Post,
  Put,
  Query,
  type RawBodyRequest,
  Req,
  Scope,
  Version,
  VersioningType,
} from '@nestjs/common';
import { fromRequest, header, IdempotentBy, type IdempotencyOptions } from 'nestjs-cmdx';
import { Door } from '../../support/door.js';
import { type Answer, ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { byUser, deliverTwice, isReplay, keyed } from '../../support/http-idempotency.js';
import { until } from '../../support/time.js';

closeAppsAfterEach();

@Controller('orders')
class Orders {
  runs = 0;

  @Post('create')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async create(@Body() _body: unknown): Promise<object> {
    return { run: (this.runs += 1) };
  }

  @Post('required')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser, onBlank: 'fail' })
  async required(): Promise<object> {
    return { run: (this.runs += 1) };
  }

  @Post('shared')
  @IdempotentBy(header('Idempotency-Key'), { scope: 'shared' })
  async shared(): Promise<object> {
    return { run: (this.runs += 1) };
  }

  @Post('mine')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser, name: 'one', fingerprint: false })
  async mine(): Promise<object> {
    return { run: (this.runs += 1), of: 'mine' };
  }

  @Post('everybody')
  @IdempotentBy(header('Idempotency-Key'), { scope: 'shared', name: 'one', fingerprint: false })
  async everybody(): Promise<object> {
    return { run: (this.runs += 1), of: 'everybody' };
  }

  @Post('apart')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser, fingerprint: false })
  async apart(): Promise<object> {
    return { run: (this.runs += 1) };
  }
}

describe.each(ADAPTERS)('whose key is it? (%s)', (adapter) => {
  const start = async () => {
    const http = await startHttp(adapter, { controllers: [Orders] });
    const run = async (path: string, headers: Record<string, string>): Promise<Answer['body']> =>
      (await http.post(`/orders/${path}`, {}, headers)).body;
    return { http, run, orders: http.app.get(Orders) };
  };

  it("each user's own: two users, one key, two runs and two answers", async () => {
    const { run, orders } = await start();
    expect(await run('create', keyed('k', 'ada'))).toEqual({ run: 1 });
    expect(await run('create', keyed('k', 'bob'))).toEqual({ run: 2 });
    expect(await run('create', keyed('k', 'ada'))).toEqual({ run: 1 });
    expect(await run('create', keyed('k', 'bob'))).toEqual({ run: 2 });
    expect(orders.runs).toBe(2);
  });

  it("nobody else's, however user and key are cut", async () => {
    const { run, orders } = await start();
    for (const [user, key] of [
      ['ada', 'b:c'],
      ['ada:b', 'c'],
      ['ada%3Ab', 'c'],
      ['ada', 'b%3Ac'],
    ] as const) {
      await run('apart', keyed(key, user));
    }
    expect(orders.runs).toBe(4);
  });

  it("everybody's where the scope says so, and never one that reads like a user's", async () => {
    const { run, http, orders } = await start();
    expect(await run('shared', keyed('k', 'ada'))).toEqual({ run: 1 });
    expect(await run('shared', keyed('k', 'bob'))).toEqual({ run: 1 });
    expect(await run('mine', keyed('k', 'ada'))).toEqual({ run: 2, of: 'mine' });
    expect(await run('everybody', keyed('ada:k', 'eve'))).toEqual({ run: 3, of: 'everybody' });
    expect(await run('everybody', keyed('ada%3Ak', 'eve'))).toEqual({ run: 4, of: 'everybody' });
    expect(orders.runs).toBe(4);
    expect(await http.store.get('cmdx:idem:one:ada:k')).toBeDefined();
  });

  it('of nobody, and not shared, where the user is blank', async () => {
    const { run, http } = await start();
    expect(await run('create', { 'idempotency-key': 'k' })).toEqual({ run: 1 });
    expect(await run('create', { 'idempotency-key': 'k' })).toEqual({ run: 2 });
    expect(http.store.size).toBe(0);
    expect(await run('required', { 'idempotency-key': 'k' })).toMatchObject({
      statusCode: 400,
      code: 'key_missing',
    });
  });

  it.each([
    ['missing', undefined],
    ['empty', ''],
    ['quoted and empty', '""'],
  ])('none where the header is %s: every delivery runs, or none', async (_what, key) => {
    const { http, run, orders } = await start();
    const headers = { 'x-user': 'ada', ...(key !== undefined && { 'idempotency-key': key }) };
    expect(await run('create', headers)).toEqual({ run: 1 });
    expect(await run('create', headers)).toEqual({ run: 2 });
    expect(http.telemetry.of('policy_bypassed')).toHaveLength(2);
    expect(await run('required', headers)).toEqual({
      statusCode: 400,
      error: 'Bad Request',
      message: 'A required value is missing.',
      code: 'key_missing',
    });
    expect(orders.runs).toBe(2);
    expect(http.store.size).toBe(0);
  });

  it('the same, quoted as a structured field or not', async () => {
    const { run, orders } = await start();
    for (const key of ['k', '"k"', ' "k" ', ' k ']) {
      expect([key, await run('create', keyed(key))]).toEqual([key, { run: 1 }]);
    }
    // The text that is quoted, not the way in which it is written.
    expect(await run('create', keyed(String.raw`"a\"b\\c"`))).toEqual({ run: 2 });
    expect(await run('create', keyed(String.raw`a"b\c`))).toEqual({ run: 2 });
    // No string: it stays what it is.
    expect(await run('create', keyed('"k'))).toEqual({ run: 3 });
    expect(await run('create', keyed(String.raw`"\k"`))).toEqual({ run: 4 });
    expect(await run('create', keyed('"k";p=1'))).toEqual({ run: 5 });
    expect(orders.runs).toBe(5);
  });

  it('another one for every character of a long one', async () => {
    const { run, orders, http } = await start();
    const long = 'k'.repeat(4_000);
    expect(await run('create', keyed(`${long}1`))).toEqual({ run: 1 });
    expect(await run('create', keyed(`${long}2`))).toEqual({ run: 2 });
    expect(await run('create', keyed(`${long}1`))).toEqual({ run: 1 });
    expect(orders.runs).toBe(2);
    for (const { payload } of http.telemetry.of('idempotency_claimed')) {
      const { idempotencyKey } = payload as { idempotencyKey: string };
      expect(idempotencyKey).toMatch(/^cmdx:idem:Orders\.create:sha256-[0-9a-f]{64}$/);
    }
  });

  it('one of its own where the header was sent twice: never that of one of both', async () => {
    const { http, run } = await start();
    expect(await run('create', keyed('a'))).toEqual({ run: 1 });
    const twice = (): Promise<unknown> =>
      sendRaw(`${http.url}/orders/create`, [
        'X-User',
        'ada',
        'Idempotency-Key',
        'a',
        'Idempotency-Key',
        'b',
      ]);
    expect(await twice()).toEqual({ run: 2 });
    expect(await twice()).toEqual({ run: 2 });
  });
});

/** Sends an empty JSON object with headers that `fetch` would join. */
function sendRaw(url: string, headers: readonly string[]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const { host } = new URL(url);
    const all = [
      'Host',
      host,
      'Content-Type',
      'application/json',
      'Content-Length',
      '2',
      ...headers,
    ];
    const sent = rawRequest(url, { method: 'POST', headers: all }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (text += chunk));
      response.on('end', () => resolve(JSON.parse(text)));
    });
    sent.on('error', reject);
    sent.end('{}');
  });
}

@Controller('payloads')
class Payloads {
  runs = 0;

  constructor(private readonly door: Door) {}

  @Post('held')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async held(@Body() _body: unknown): Promise<object> {
    await this.door.pass();
    return { run: (this.runs += 1) };
  }

  @Post(['of/:id', 'for/:id'])
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async create(
    @Param('id') _id: string,
    @Query() _query: unknown,
    @Body() body: { tags?: string[] },
  ): Promise<object> {
    // What the handler does to its input is none of the next delivery's business.
    body.tags = ['changed'];
    return { run: (this.runs += 1) };
  }

  @Post('unchecked')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser, fingerprint: false })
  async unchecked(@Body() _body: unknown): Promise<object> {
    return { run: (this.runs += 1) };
  }

  @Post('by-amount')
  @IdempotentBy(header('Idempotency-Key'), {
    scope: byUser,
    fingerprint: (body: { amount: number }) => body.amount,
  })
  async byAmount(@Body() _body: { amount: number }): Promise<object> {
    return { run: (this.runs += 1) };
  }

  @Post('methods')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser, name: 'methods' })
  async post(): Promise<object> {
    return { run: (this.runs += 1) };
  }

  @Put('methods')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser, name: 'methods' })
  async put(): Promise<object> {
    return { run: (this.runs += 1) };
  }
}

const MISMATCH = { status: 422, body: { code: 'payload_mismatch' } };
const REPLAY = { status: 201, body: { run: 1 } };

describe.each(ADAPTERS)('is it the same request? (%s)', (adapter) => {
  const start = async () => {
    const door = new Door();
    const http = await startHttp(adapter, {
      controllers: [Payloads],
      providers: [{ provide: Door, useValue: door }],
    });
    return { http, door, payloads: http.app.get(Payloads) };
  };

  it('no, with another payload, and that is told while the first is in flight, too', async () => {
    const { http, door, payloads } = await start();
    const first = http.post('/payloads/held', { amount: 1 }, keyed('k'));
    await until(() => door.inside === 1, 'the first body');
    expect(await http.post('/payloads/held', { amount: 2 }, keyed('k'))).toMatchObject(MISMATCH);
    expect(await http.post('/payloads/held', { amount: 1 }, keyed('k'))).toMatchObject({
      status: 409,
      body: { code: 'in_progress' },
    });
    door.open();
    expect(await first).toMatchObject(REPLAY);
    expect(await http.post('/payloads/held', { amount: 2 }, keyed('k'))).toMatchObject(MISMATCH);
    expect(await http.post('/payloads/held', { amount: 1 }, keyed('k'))).toMatchObject(REPLAY);
    expect(payloads.runs).toBe(1);
  });

  it('yes, with its fields in another order, at any depth; no, with its items in another', async () => {
    const { http, payloads } = await start();
    const send = (body: unknown): Promise<Answer> => http.post('/payloads/of/7', body, keyed('k'));
    const body = { a: 1, b: { c: [{ d: 1, e: 2 }, 3], f: null }, tags: ['x', 'y'] };
    const reordered = { tags: ['x', 'y'], b: { f: null, c: [{ e: 2, d: 1 }, 3] }, a: 1 };
    expect(await send(body)).toMatchObject(REPLAY);
    expect(isReplay(await send(reordered))).toBe(true);
    expect(await send({ ...body, tags: ['y', 'x'] })).toMatchObject(MISMATCH);
    expect(await send({ ...body, a: '1' })).toMatchObject(MISMATCH);
    expect(await send({ ...body, more: null })).toMatchObject(MISMATCH);
    expect(payloads.runs).toBe(1);
  });

  it('no, with another query, another parameter or by another route of the same handler', async () => {
    const { http, payloads } = await start();
    expect(await http.post('/payloads/of/7?a=1&b=2', {}, keyed('k'))).toMatchObject(REPLAY);
    expect(isReplay(await http.post('/payloads/of/7?b=2&a=1', {}, keyed('k')))).toBe(true);
    for (const path of ['of/7?a=1', 'of/7?a=1&b=3', 'of/8?a=1&b=2', 'for/7?a=1&b=2']) {
      expect([path, await http.post(`/payloads/${path}`, {}, keyed('k'))]).toMatchObject([
        path,
        MISMATCH,
      ]);
    }
    expect(payloads.runs).toBe(1);
  });

  it('no, by another method, although the two share a name', async () => {
    const { http, payloads } = await start();
    expect(await http.post('/payloads/methods', {}, keyed('k'))).toMatchObject(REPLAY);
    const put = await http.request('/payloads/methods', {
      method: 'PUT',
      headers: { ...keyed('k'), 'content-type': 'application/json' },
      body: '{}',
    });
    expect(put).toMatchObject(MISMATCH);
    expect(payloads.runs).toBe(1);
  });

  it('whatever the option says: never asked, or asked of the arguments alone', async () => {
    const { http, payloads } = await start();
    expect(await http.post('/payloads/unchecked', { a: 1 }, keyed('k'))).toMatchObject(REPLAY);
    expect(await http.post('/payloads/unchecked', { a: 2 }, keyed('k'))).toMatchObject(REPLAY);
    const byAmount = (body: unknown): Promise<Answer> =>
      http.post('/payloads/by-amount', body, keyed('k'));
    expect(await byAmount({ amount: 1, at: 1 })).toMatchObject({ body: { run: 2 } });
    expect(await byAmount({ amount: 1, at: 2 })).toMatchObject({ body: { run: 2 } });
    expect(await byAmount({ amount: 2, at: 1 })).toMatchObject(MISMATCH);
    expect(payloads.runs).toBe(2);
  });
});

const SCOPED: IdempotencyOptions = { scope: byUser };

@Controller('class-wide')
@IdempotentBy(header('Idempotency-Key'), SCOPED)
class ClassWide {
  runs = 0;

  @Post('one')
  async one(): Promise<object> {
    return { run: (this.runs += 1), of: 'one' };
  }

  @Post('two')
  async two(): Promise<object> {
    return { run: (this.runs += 1), of: 'two' };
  }

  /** A synchronous handler becomes an asynchronous one. */
  @Post('three')
  three(): object {
    return { run: (this.runs += 1), of: 'three' };
  }

  @Get('status')
  @IdempotentBy(false)
  async status(): Promise<object> {
    return { run: (this.runs += 1), of: 'status' };
  }
}

@Controller({ path: 'versioned', version: ['1', '2'] })
class Versioned {
  runs = 0;

  @Post()
  @IdempotentBy(header('Idempotency-Key'), SCOPED)
  async create(): Promise<object> {
    return { run: (this.runs += 1), version: 'any' };
  }

  @Post()
  @Version('3')
  @IdempotentBy(header('Idempotency-Key'), SCOPED)
  async createThird(): Promise<object> {
    return { run: (this.runs += 1), version: '3' };
  }
}

let perRequestRuns = 0;

@Controller({ path: 'per-request', scope: Scope.REQUEST })
class PerRequest {
  readonly #made = (perRequestRuns += 1);

  @Post()
  @IdempotentBy(header('Idempotency-Key'), SCOPED)
  async create(): Promise<object> {
    return { instance: this.#made };
  }
}

@Controller('webhooks')
class Webhooks {
  readonly seen: string[] = [];

  @Post()
  @IdempotentBy(
    fromRequest<RawBodyRequest<{ headers: Record<string, string> }>>(
      ({ headers }) => headers['x-delivery'],
    ),
  )
  async receive(@Req() request: RawBodyRequest<object>): Promise<object> {
    this.seen.push(request.rawBody?.toString() ?? 'nothing');
    return { bytes: request.rawBody?.length };
  }
}

describe.each(ADAPTERS)('where the handler stands (%s)', (adapter) => {
  it('below a class-wide key, which is one per handler', async () => {
    const http = await startHttp(adapter, { controllers: [ClassWide] });
    for (const [run, name] of ['one', 'two', 'three'].entries()) {
      const { first, again } = await deliverTwice(http, `/class-wide/${name}`, keyed('k'));
      expect(first.body).toEqual({ run: run + 1, of: name });
      expect([again.text, isReplay(again)]).toEqual([first.text, true]);
    }
    for (const run of [4, 5]) {
      expect((await http.get('/class-wide/status', keyed('k'))).body).toMatchObject({ run });
    }
  });

  it('under a prefix and a version of the path: another version is another request', async () => {
    const http = await startHttp(adapter, {
      controllers: [Versioned],
      setUp: (app) => {
        app.setGlobalPrefix('api');
        app.enableVersioning({ type: VersioningType.URI });
      },
    });
    const { first, again } = await deliverTwice(http, '/api/v1/versioned', keyed('k'));
    expect(first.body).toEqual({ run: 1, version: 'any' });
    expect([again.text, isReplay(again)]).toEqual([first.text, true]);
    expect(await http.post('/api/v2/versioned', {}, keyed('k'))).toMatchObject(MISMATCH);
    expect((await http.post('/api/v3/versioned', {}, keyed('k'))).body).toEqual({
      run: 2,
      version: '3',
    });
  });

  it('under a version of a header: another handler has keys of its own', async () => {
    const http = await startHttp(adapter, {
      controllers: [Versioned],
      setUp: (app) =>
        void app.enableVersioning({ type: VersioningType.HEADER, header: 'x-version' }),
    });
    const send = async (version: string): Promise<unknown> =>
      (await http.post('/versioned', {}, { ...keyed('k'), 'x-version': version })).body;
    expect(await send('1')).toEqual({ run: 1, version: 'any' });
    expect(await send('1')).toEqual({ run: 1, version: 'any' });
    expect(await send('3')).toEqual({ run: 2, version: '3' });
    expect(await send('3')).toEqual({ run: 2, version: '3' });
  });

  it('in a controller of each request: the answer of the first instance', async () => {
    perRequestRuns = 0;
    const http = await startHttp(adapter, { controllers: [PerRequest] });
    const { first, again } = await deliverTwice(http, '/per-request', keyed('k'));
    expect(first.body).toEqual({ instance: 1 });
    expect([again.text, isReplay(again)]).toEqual([first.text, true]);
    expect(perRequestRuns).toBe(2);
  });

  it('behind a sender who signs the raw body', async () => {
    const http = await startHttp(adapter, {
      controllers: [Webhooks],
      options: { rawBody: true },
    });
    const { first, again } = await deliverTwice(
      http,
      '/webhooks',
      { 'x-delivery': 'd-1' },
      { a: 1 },
    );
    expect(first.body).toEqual({ bytes: 7 });
    expect([again.text, isReplay(again)]).toEqual([first.text, true]);
    expect(http.app.get(Webhooks).seen).toEqual(['{"a":1}']);
  });
});
