import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, describe, expect, it } from '@jest/globals';
import {
  Controller,
  Header,
  HttpCode,
  type HttpRedirectResponse,
  Param,
  Post,
  Redirect,
  Render,
  Res,
  StreamableFile,
} from '@nestjs/common';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { header, IdempotentBy } from 'nestjs-cmdx';
import { of } from 'rxjs';
import { type Answer, ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { byUser, deliverTwice, isReplay, keyed } from '../../support/http-idempotency.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeAppsAfterEach();
refuseUnhandledRejections();

class Money {
  readonly #currency = 'EUR';

  constructor(readonly cents: number) {}

  get text(): string {
    return `${this.cents} ${this.#currency}`;
  }
}

const circular: Record<string, unknown> = { name: 'itself' };
circular['self'] = circular;

async function* chunks(): AsyncGenerator<string> {
  yield 'one';
  yield 'two';
}

/** What a handler may return, by name. */
const REPLAYED: Readonly<Record<string, () => unknown>> = {
  undefined: () => undefined,
  null: () => null,
  'a string': () => 'täxt',
  'an empty string': () => '',
  'a number': () => 42,
  'a number that is none': () => NaN,
  false: () => false,
  'a Date': () => new Date(0),
  'a Buffer': () => Buffer.from('bÿtes'),
  'other bytes': () => new Uint8Array([0, 255]),
  'a Map': () => new Map([['a', 1]]),
  'a Set': () => new Set([1]),
  'an array': () => [new Date(0), undefined, null, 'x'],
  'nested objects': () => ({
    b: { at: new Date(0), gone: undefined, none: null, rate: 0.1 },
    a: [{ at: new Date(1) }, -0, 1e21],
    '2': 'two',
    '1': 'one',
  }),
  'names that mean something to JavaScript': () =>
    JSON.parse('{"__proto__":{"admin":true},"constructor":1,"toString":2}'),
  'an instance of a class': () => new Money(5),
  'a promised Observable': () => of({ at: 'draft' }, { at: new Date(0) }),
  'what toJSON makes': () => ({ toJSON: () => ({ made: 'by toJSON' }) }),
};

/** What cannot be given again: the work is done all the same. */
const DONE: Readonly<Record<string, () => unknown>> = {
  'a StreamableFile': () => new StreamableFile(Buffer.from('file')),
  'a stream of Node': () => Readable.from(['one', 'two']),
  'a stream of the web': () => new Blob(['one']).stream(),
  'a Response': () => new Response('one'),
  'an async generator': () => chunks(),
  'a stream in an object': () => ({ data: Readable.from(['one']) }),
  'a megabyte': () => ({ text: 'x'.repeat(1024 * 1024) }),
  'something circular': () => circular,
  'a bigint inside': () => ({ amount: 5n }),
  'an Error': () => new Error('as a value'),
  'a getter that throws': () => ({
    get bad(): string {
      throw new Error('not readable');
    },
  }),
};

const VALUES = { ...REPLAYED, ...DONE };

@Controller('values')
class Values {
  runs = 0;

  @Post('bare/:name')
  async bare(@Param('name') name: string): Promise<unknown> {
    return VALUES[name]?.();
  }

  @Post('kept/:name')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async kept(@Param('name') name: string): Promise<unknown> {
    this.runs += 1;
    return VALUES[name]?.();
  }
}

/** What a client can tell two answers apart by, the mark of a replay apart. */
const seen = ({ status, text, headers }: Answer): object => ({
  status,
  text,
  type: headers.get('content-type'),
  length: headers.get('content-length'),
});

describe.each(ADAPTERS)(
  'what does a redelivery get of a handler that returns ... (%s)',
  (adapter) => {
    it.each(Object.keys(REPLAYED))('%s? The first answer, byte by byte', async (name) => {
      const http = await startHttp(adapter, { controllers: [Values] });
      const bare = await http.post(`/values/bare/${name}`);
      const { first, again } = await deliverTwice(http, `/values/kept/${name}`, keyed('k'));
      expect(seen(first)).toEqual(seen(bare));
      expect(seen(again)).toEqual(seen(first));
      expect([isReplay(first), isReplay(again)]).toEqual([false, true]);
      expect(http.app.get(Values).runs).toBe(1);
    });

    it.each(Object.keys(DONE))('%s? That it is done', async (name) => {
      const http = await startHttp(adapter, { controllers: [Values] });
      const bare = await http.post(`/values/bare/${name}`);
      const { first, again } = await deliverTwice(http, `/values/kept/${name}`, keyed('k'));
      expect(seen(first)).toEqual(seen(bare));
      expect(again).toMatchObject({ status: 409, body: { code: 'duplicate' } });
      expect(isReplay(again)).toBe(false);
      expect(http.app.get(Values).runs).toBe(1);
      const [duplicate] = http.telemetry.of('idempotency_duplicate');
      expect(duplicate?.payload).toMatchObject({ replayable: false });
    });

    it('a bigint? What the adapter makes of one, both times', async () => {
      @Controller()
      class Counts {
        runs = 0;

        @Post('count')
        @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
        async count(): Promise<bigint> {
          this.runs += 1;
          return 5n;
        }
      }
      const http = await startHttp(adapter, { controllers: [Counts] });
      const { first, again } = await deliverTwice(http, '/count', keyed('k'));
      // Fastify sends JSON, which has no bigint.
      expect(first.status).toBe(adapter === 'express' ? 201 : 500);
      expect(seen(again)).toEqual(seen(first));
      expect(http.app.get(Counts).runs).toBe(1);
    });
  },
);

interface AnyResponse {
  status(code: number): unknown;
  header(name: string, value: string | string[] | number): unknown;
}

@Controller('heads')
class Heads {
  runs = 0;

  @Post('accepted')
  @HttpCode(202)
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async accepted(): Promise<object> {
    return { run: (this.runs += 1) };
  }

  @Post('gone')
  @HttpCode(204)
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async gone(): Promise<void> {
    this.runs += 1;
  }

  @Post('chosen')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async chosen(@Res({ passthrough: true }) response: AnyResponse): Promise<object> {
    this.runs += 1;
    response.status(this.runs === 1 ? 207 : 500);
    return { run: this.runs };
  }

  @Post('written')
  @Header('Cache-Control', 'no-store')
  @Header('X-Static', 'set for every answer')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async written(@Res({ passthrough: true }) response: AnyResponse): Promise<string> {
    this.runs += 1;
    for (const [name, value] of Object.entries({ ...KEPT, ...PERSONAL })) {
      response.header(name, value);
    }
    return '<receipt/>';
  }

  @Post('to/:status')
  @Redirect('/never')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async redirect(@Param('status') status: string): Promise<HttpRedirectResponse> {
    this.runs += 1;
    return { url: `/orders/${this.runs}`, statusCode: Number(status) as 302 };
  }

  @Post('fixed')
  @Redirect('/fixed', 308)
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async fixed(): Promise<void> {
    this.runs += 1;
  }
}

/** What belongs to the answer, whoever gets it when. */
const KEPT: Readonly<Record<string, string | string[] | number>> = {
  'Content-Type': 'application/xml; charset=utf-8',
  'Content-Disposition': 'attachment; filename="receipt.xml"',
  'Content-Language': 'de',
  'Content-Location': '/receipts/1',
  ETag: '"v1"',
  Expires: 0,
  'Last-Modified': 'Thu, 01 Jan 1970 00:00:00 GMT',
  Link: ['</next>; rel=next', '</last>; rel=last'],
  Location: '/receipts/1',
};

/** What was meant for the first client alone. */
const PERSONAL: Readonly<Record<string, string>> = {
  'Set-Cookie': 'session=of-ada',
  'WWW-Authenticate': 'Bearer realm="of-ada"',
  Authorization: 'Bearer of-ada',
  'Proxy-Authenticate': 'Basic',
  'X-Session': 'of-ada',
  'X-Request-Id': '1',
};

describe.each(ADAPTERS)('the head of an answer given again (%s)', (adapter) => {
  it.each([
    ['accepted', 202],
    ['gone', 204],
    ['chosen', 207],
  ])('has the status of the first (%s)', async (path, status) => {
    const http = await startHttp(adapter, { controllers: [Heads] });
    const { first, again } = await deliverTwice(http, `/heads/${path}`, keyed('k'));
    expect([first.status, again.status]).toEqual([status, status]);
    expect(again.text).toBe(first.text);
    expect(http.app.get(Heads).runs).toBe(1);
  });

  it('has the headers that belong to the answer, and nothing that was meant for one client', async () => {
    const http = await startHttp(adapter, { controllers: [Heads] });
    const { first, again } = await deliverTwice(http, '/heads/written', keyed('k'));
    expect(again.text).toBe(first.text);
    for (const name of [...Object.keys(KEPT), 'Cache-Control', 'X-Static']) {
      const value = first.headers.get(name);
      expect([name, value]).not.toEqual([name, null]);
      expect([name, again.headers.get(name)]).toEqual([name, value]);
    }
    for (const [name, value] of Object.entries(PERSONAL)) {
      expect([name, first.headers.get(name)]).toEqual([name, value]);
      expect([name, again.headers.get(name)]).toEqual([name, null]);
    }
    const kept = await http.store.get('cmdx:idem:Heads.written:ada:k');
    expect(kept).toContain('/receipts/1');
    expect(kept).not.toContain('of-ada');
  });

  it.each(['301', '302', '303', '307'])('leads to where the first led, with %s', async (status) => {
    const http = await startHttp(adapter, { controllers: [Heads] });
    const { first, again } = await deliverTwice(http, `/heads/to/${status}`, keyed('k'));
    for (const answer of [first, again]) {
      expect(answer.status).toBe(Number(status));
      expect(answer.headers.get('location')).toBe('/orders/1');
    }
    expect(isReplay(again)).toBe(true);
    expect(http.app.get(Heads).runs).toBe(1);
  });

  it('leads to where the decorator says, if the handler says nothing', async () => {
    const http = await startHttp(adapter, { controllers: [Heads] });
    const { first, again } = await deliverTwice(http, '/heads/fixed', keyed('k'));
    expect([first.status, again.status]).toEqual([308, 308]);
    expect(again.headers.get('location')).toBe('/fixed');
    expect(isReplay(again)).toBe(true);
    expect(http.app.get(Heads).runs).toBe(1);
  });
});

describe('a view (express)', () => {
  const views = mkdtempSync(join(tmpdir(), 'views-'));
  writeFileSync(join(views, 'page.time'), '');
  afterAll(() => rmSync(views, { recursive: true }));

  it('is made again of the values that the first was made of', async () => {
    @Controller()
    class Pages {
      runs = 0;

      @Post('page')
      @Render('page')
      @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
      async page(): Promise<object> {
        this.runs += 1;
        return { at: new Date(this.runs) };
      }
    }
    const http = await startHttp('express', {
      controllers: [Pages],
      setUp: (app) => {
        const express = app as NestExpressApplication;
        express.engine(
          'time',
          (_path: string, { at }: { at: Date }, done: (error: null, html: string) => void) =>
            done(null, `<time>${at.getTime()}</time>`),
        );
        express.setBaseViewsDir(views);
        express.setViewEngine('time');
      },
    });
    const { first, again } = await deliverTwice(http, '/page', keyed('k'));
    expect(first).toMatchObject({ status: 201, text: '<time>1</time>' });
    expect(seen(again)).toEqual(seen(first));
    expect(isReplay(again)).toBe(true);
    expect(http.app.get(Pages).runs).toBe(1);
  });
});
