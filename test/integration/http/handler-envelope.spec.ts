import { PassThrough } from 'node:stream';
import { describe, expect, it } from '@jest/globals';
import {
  Body,
  type CallHandler,
  Controller,
  type ExecutionContext,
  Get,
  Header,
  HttpCode,
  Injectable,
  type MessageEvent,
  type NestInterceptor,
  Next,
  Param,
  Post,
  Query,
  Redirect,
  Render,
  Req,
  RequestTimeoutException,
  Res,
  Scope,
  Sse,
  StreamableFile,
  UseInterceptors,
} from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import {
  clientIp,
  currentInvocation,
  header,
  input,
  LockWith,
  RateLimit,
  skip,
  Store,
} from 'nestjs-cmdx';
import {
  catchError,
  concatMap,
  from,
  last,
  map,
  Observable,
  of,
  repeat,
  retry,
  Subject,
  tap,
  throwError,
  timeout,
} from 'rxjs';
import { Door } from '../../support/door.js';
import {
  ADAPTERS,
  type AdapterName,
  closeAppsAfterEach,
  startHttp,
} from '../../support/http-app.js';
import { RemoteStore } from '../../support/http-remote-store.js';
import { until } from '../../support/time.js';

closeAppsAfterEach();

const tid = (): string | undefined => currentInvocation()?.tid;

/** What each interceptor saw as the running invocation, on the way in and on the way out. */
const seen: { who: string; in: string | undefined; out: string | undefined }[] = [];

class Watching implements NestInterceptor {
  constructor(private readonly who: string) {}

  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const before = tid();
    return next.handle().pipe(tap(() => seen.push({ who: this.who, in: before, out: tid() })));
  }
}

@Injectable()
class AppWide extends Watching {
  constructor() {
    super('APP_INTERCEPTOR');
  }
}

@Controller('watched')
@UseInterceptors(new Watching('class'))
class Watched {
  @Get('promise/:id')
  @UseInterceptors(new Watching('method'))
  @LockWith(input('id'))
  async promise(@Param('id') _id: string) {
    return { tid: tid() };
  }

  @Get('stream/:id')
  @UseInterceptors(new Watching('method'))
  @LockWith(input('id'))
  stream(@Param('id') _id: string): Observable<object> {
    return of(null).pipe(map(() => ({ tid: tid() })));
  }

  @Get('promised-stream/:id')
  @UseInterceptors(new Watching('method'))
  @LockWith(input('id'))
  async promisedStream(@Param('id') _id: string) {
    await Promise.resolve();
    return of(null).pipe(map(() => ({ tid: tid() })));
  }
}

@Controller()
class Unlucky {
  @Get('unlucky/:id')
  @UseInterceptors({
    intercept: (_, next) =>
      next.handle().pipe(
        map(() => {
          throw new RequestTimeoutException('the serializer broke');
        }),
      ),
  })
  @LockWith(input('id'))
  async run(@Param('id') _id: string) {
    return 'done';
  }
}

describe.each(ADAPTERS)('inner interceptors, on %s', (adapter) => {
  it.each(['promise', 'stream', 'promised-stream'])(
    'see the tid that the handler sees, wherever they are registered (%s)',
    async (kind) => {
      const http = await startHttp(adapter, {
        controllers: [Watched],
        providers: [{ provide: APP_INTERCEPTOR, useClass: AppWide }],
        setUp: (app) => app.useGlobalInterceptors(new Watching('useGlobalInterceptors')),
      });
      const tids = new Set<string>();
      for (const id of ['1', '2']) {
        seen.length = 0;
        const answer = await http.get(`/watched/${kind}/${id}`);
        const own = (answer.body as { tid: string }).tid;
        expect(own).toMatch(/^[0-9a-f-]{36}$/);
        const everybody = ['APP_INTERCEPTOR', 'class', 'method', 'useGlobalInterceptors'];
        expect(seen.toSorted((a, b) => a.who.localeCompare(b.who))).toEqual(
          everybody.map((who) => ({ who, in: own, out: own })),
        );
        tids.add(own);
      }
      expect(tids.size).toBe(2);
      expect(http.telemetry.of('lock_acquired').map((event) => event.tid)).toEqual([...tids]);
    },
  );

  it('may retry(): every attempt is an invocation of its own, and none meets the lease of another', async () => {
    let failures = 2;
    const bodies: (string | undefined)[] = [];
    @Controller()
    class Flaky {
      @Get('flaky/:id')
      @UseInterceptors({ intercept: (_, next) => next.handle().pipe(retry({ count: 2 })) })
      @LockWith(input('id'))
      @RateLimit(input('id'), { max: 5, per: 60 })
      async run(@Param('id') _id: string) {
        bodies.push(tid());
        if (failures-- > 0) throw new Error('not yet');
        return 'done';
      }
    }
    const http = await startHttp(adapter, { controllers: [Flaky] });
    expect(await http.get('/flaky/7')).toMatchObject({ status: 200, text: 'done' });
    expect(new Set(bodies).size).toBe(3);
    expect(http.telemetry.of('task_started').map((event) => event.tid)).toEqual(bodies);
    const ends = http.telemetry.of('task_executed');
    expect(ends.map(({ payload }) => (payload.result as { status: string }).status)).toEqual([
      'failed',
      'failed',
      'success',
    ]);
    expect(await http.store.get('cmdx:rl:Flaky.run:7')).toBe('3');
    expect(await http.store.get('cmdx:lock:Flaky.run:7')).toBeUndefined();
  });

  it('may call the handler again after it succeeded: the first run is closed before', async () => {
    @Controller()
    class Repeated {
      @Get('repeated/:id')
      @UseInterceptors({ intercept: (_, next) => next.handle().pipe(repeat(3), last()) })
      @LockWith(input('id'))
      async run(@Param('id') _id: string) {
        return 'done';
      }
    }
    const http = await startHttp(adapter, { controllers: [Repeated] });
    expect(await http.get('/repeated/7')).toMatchObject({ status: 200, text: 'done' });
    const each = ['task_started', 'lock_acquired', 'task_executed'];
    expect(http.telemetry.names).toEqual([...each, ...each, ...each]);
    expect(http.store.size).toBe(0);
  });

  it('may give up by timeout() while the body runs: the lease is kept until the body ends', async () => {
    const door = new Door();
    @Controller()
    class Slow {
      @Get('slow/:id')
      @UseInterceptors({
        intercept: (_, next) =>
          next.handle().pipe(
            timeout({
              each: 40,
              with: () => throwError(() => new RequestTimeoutException()),
            }),
          ),
      })
      @LockWith(input('id'))
      async run(@Param('id') _id: string) {
        await door.pass();
        return 'done';
      }
    }
    const http = await startHttp(adapter, { controllers: [Slow] });
    expect((await http.get('/slow/7')).status).toBe(408);
    expect(door.inside).toBe(1);
    expect(await http.store.get('cmdx:lock:Slow.run:7')).toBe(
      http.telemetry.of('lock_acquired')[0]?.tid,
    );
    expect((await http.get('/slow/7')).status).toBe(409);
    expect(http.telemetry.of('task_executed')).toHaveLength(1);

    door.open();
    await until(() => http.telemetry.of('task_executed').length === 2, 'the end of the slow body');
    expect(await http.store.get('cmdx:lock:Slow.run:7')).toBeUndefined();
    expect((await http.get('/slow/7')).status).toBe(200);
  });

  it('may fail after the body succeeded: the lease is given back and the error goes out', async () => {
    const http = await startHttp(adapter, { controllers: [Unlucky] });
    for (let each = 0; each < 2; each++) {
      expect(await http.get('/unlucky/7')).toMatchObject({
        status: 408,
        body: { message: 'the serializer broke' },
      });
      expect(http.store.size).toBe(0);
    }
    const ends = http.telemetry.of('task_executed');
    expect(ends.map(({ payload }) => (payload.result as { status: string }).status)).toEqual([
      'success',
      'success',
    ]);
  });

  it('may answer without the handler: nothing is charged and nothing is taken', async () => {
    @Controller()
    class Cached {
      @Get('cached/:id')
      @UseInterceptors({ intercept: () => of('from the cache') })
      @LockWith(input('id'))
      @RateLimit(input('id'), { max: 1, per: 60 })
      async run(@Param('id') _id: string) {
        return 'done';
      }
    }
    const http = await startHttp(adapter, { controllers: [Cached] });
    for (let each = 0; each < 3; each++) {
      expect(await http.get('/cached/7')).toMatchObject({ status: 200, text: 'from the cache' });
    }
    expect(http.store.size).toBe(0);
    expect(http.telemetry.events).toEqual([]);
  });

  it('may reshape the answer, while the lease is still held', async () => {
    @Injectable()
    class Reshape implements NestInterceptor {
      constructor(private readonly store: Store) {}

      intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
        return next.handle().pipe(
          concatMap(async (value) => ({
            value,
            held: (await this.store.get('cmdx:lock:Reshaped.run:7')) === tid(),
          })),
        );
      }
    }
    @Controller()
    class Reshaped {
      @Get('reshaped/:id')
      @UseInterceptors(Reshape)
      @LockWith(input('id'))
      async run(@Param('id') _id: string) {
        return 'done';
      }
    }
    const http = await startHttp(adapter, { controllers: [Reshaped] });
    expect((await http.get('/reshaped/7')).body).toEqual({ value: 'done', held: true });
    expect(http.store.size).toBe(0);
  });
});

/** Every way to answer, each under the same lock key of its own. */
@Controller('answers')
class Answers {
  constructor(private readonly door: Door) {}

  @Get('value/:id')
  @LockWith(input('id'))
  async value(@Param('id') id: string) {
    return { id };
  }

  @Get('held/:id')
  @LockWith(input('id'))
  async held(@Param('id') id: string) {
    await this.door.pass();
    return { id };
  }

  @Get('stream/:id')
  @LockWith(input('id'))
  stream(@Param('id') id: string): Observable<object> {
    return from(this.door.pass()).pipe(map(() => ({ id })));
  }

  @Get('promised-stream/:id')
  @LockWith(input('id'))
  async promisedStream(@Param('id') id: string) {
    return from(this.door.pass()).pipe(map(() => ({ id })));
  }

  @Get('passthrough/:id')
  @LockWith(input('id'), { onBusy: 'skip' })
  async passthrough(@Param('id') id: string, @Res({ passthrough: true }) response: WithHeader) {
    response.header('x-answer', 'mine');
    await this.door.pass();
    return id === 'never' ? undefined : { id };
  }

  @Get('own/:id')
  @LockWith(input('id'))
  async own(@Param('id') id: string, @Res() response: WithHeader) {
    await this.door.pass();
    response.send({ id });
  }

  @Get('redirect/:id')
  @Redirect('/elsewhere', 307)
  @Header('x-answer', 'mine')
  @LockWith(input('id'))
  async redirect(@Param('id') _id: string) {}

  @Get('created/:id')
  @HttpCode(201)
  @Header('x-answer', 'mine')
  @LockWith(input('id'))
  async created(@Param('id') id: string) {
    return { id };
  }
}

/** What Express's and Fastify's responses have in common. */
interface WithHeader {
  header(name: string, value: string): unknown;
  send(body: unknown): unknown;
}

@Controller('sync')
@LockWith(input('id'))
class Sync {
  @Get('value/:id')
  value(@Param('id') id: string) {
    return { id, tid: tid(), task: currentInvocation()?.task };
  }

  @Get('nothing/:id')
  nothing(@Param('id') _id: string) {}

  @Get('thrown/:id')
  thrown(@Param('id') _id: string) {
    throw new RequestTimeoutException('sync');
  }
}

describe.each(ADAPTERS)('every way to answer, on %s', (adapter) => {
  const open = async (name: AdapterName) => {
    const door = new Door();
    const providers = [{ provide: Door, useValue: door }];
    return { door, http: await startHttp(name, { controllers: [Answers], providers }) };
  };

  it('the lease is given back before the client has its answer: 200 requests in a row', async () => {
    // At a distance, so that a lease given back too late is still held when the next request comes.
    const store = new RemoteStore(2);
    const door = new Door();
    door.open();
    const http = await startHttp(adapter, {
      controllers: [Answers, Sync, Unlucky],
      providers: [{ provide: Door, useValue: door }],
      cmdx: { store },
    });
    const answers = ['value', 'stream', 'promised-stream', 'passthrough', 'redirect'];
    const paths = answers
      .map((kind) => `/answers/${kind}`)
      .concat('/sync/value', '/sync/thrown', '/unlucky');
    const expected = [200, 200, 200, 200, 307, 200, 408, 408];
    for (let round = 0; round < 25; round++) {
      const statuses: number[] = [];
      for (const path of paths) {
        statuses.push((await http.get(`${path}/7`)).status);
        expect({ path, round, keys: store.size }).toEqual({ path, round, keys: 0 });
      }
      expect(statuses).toEqual(expected);
    }
    expect(http.telemetry.of('lock_busy')).toEqual([]);
  }, 30_000);

  it.each(['held', 'stream', 'promised-stream', 'own'])(
    'a second request is refused while the first has no answer yet (%s)',
    async (kind) => {
      const { door, http } = await open(adapter);
      const first = http.get(`/answers/${kind}/7`);
      await until(() => door.inside === 1, 'the first body');
      expect(await http.get(`/answers/${kind}/7`)).toMatchObject({
        status: 409,
        body: { code: 'busy' },
      });
      expect(door.entered).toBe(1);
      door.open();
      expect(await first).toMatchObject({ status: 200, body: { id: '7' } });
      expect((await http.get(`/answers/${kind}/7`)).status).toBe(200);
      expect(http.store.size).toBe(0);
    },
  );

  it('@Res({ passthrough: true }) answers, and may skip', async () => {
    const { door, http } = await open(adapter);
    const first = http.get('/answers/passthrough/7');
    await until(() => door.inside === 1, 'the first body');
    const skipped = await http.get('/answers/passthrough/7');
    expect(skipped.status).toBe(202);
    expect(skipped.body).toMatchObject({ status: 'skipped', code: 'busy' });
    door.open();
    const answer = await first;
    expect(answer).toMatchObject({ status: 200, body: { id: '7' } });
    expect(answer.headers.get('x-answer')).toBe('mine');
  });

  it('@Redirect, @Header and @HttpCode keep their meaning', async () => {
    const { http } = await open(adapter);
    const redirected = await http.get('/answers/redirect/7');
    expect(redirected.status).toBe(307);
    expect(redirected.headers.get('location')).toBe('/elsewhere');
    expect(redirected.headers.get('x-answer')).toBe('mine');
    const created = await http.get('/answers/created/7');
    expect(created).toMatchObject({ status: 201, body: { id: '7' } });
    expect(created.headers.get('x-answer')).toBe('mine');
  });

  it('a sync handler under a class decorator answers as before, guarded', async () => {
    const http = await startHttp(adapter, { controllers: [Sync] });
    const answer = await http.get('/sync/value/7');
    expect(answer).toMatchObject({ status: 200, body: { id: '7', task: 'Sync.value' } });
    expect((answer.body as { tid: string }).tid).toBe(http.telemetry.of('lock_acquired')[0]?.tid);
    expect(await http.get('/sync/nothing/7')).toMatchObject({ status: 200, text: '' });
    expect(await http.get('/sync/thrown/7')).toMatchObject({
      status: 408,
      body: { message: 'sync' },
    });
    expect(http.store.size).toBe(0);
  });

  it('a StreamableFile is sent whole, and the lease is not held meanwhile', async () => {
    const content = new PassThrough();
    @Controller()
    class Files {
      @Get('file/:id')
      @Header('content-type', 'text/plain')
      @LockWith(input('id'))
      async file(@Param('id') id: string) {
        return id === 'slow'
          ? new StreamableFile(content)
          : new StreamableFile(Buffer.from('short'));
      }
    }
    const http = await startHttp(adapter, { controllers: [Files] });
    content.write('first ');
    const response = await fetch(`${http.url}/file/slow`);
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    const { value } = await reader.read();
    expect(Buffer.from(value as Uint8Array).toString()).toBe('first ');
    expect(http.store.size).toBe(0);

    content.end('last');
    let rest = '';
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      rest += Buffer.from(chunk.value).toString();
    }
    expect(rest).toBe('last');
    expect(await http.get('/file/short')).toMatchObject({ status: 200, text: 'short' });
  });

  it('@Sse holds the lease until the stream completes', async () => {
    const events = new Subject<MessageEvent>();
    @Controller()
    class Feed {
      @Sse('feed/:id')
      @LockWith(input('id'))
      feed(@Param('id') _id: string): Observable<MessageEvent> {
        return events;
      }
    }
    const http = await startHttp(adapter, { controllers: [Feed] });
    const first = http.get('/feed/7');
    await until(() => events.observed, 'the subscription');
    expect(await http.store.get('cmdx:lock:Feed.feed:7')).toBe(
      http.telemetry.of('lock_acquired')[0]?.tid,
    );
    expect(await http.get('/feed/7')).toMatchObject({ status: 409, body: { code: 'busy' } });
    events.next({ data: 'one' });
    events.next({ data: 'two' });
    events.complete();
    expect((await first).text).toMatch(/data: one\n\n.*data: two\n\n/s);
    expect(http.store.size).toBe(0);
  });

  it.each([
    ['@Sse', 'feed'],
    ['an Observable', 'once'],
  ])('a client that leaves %s gives the lease back', async (_, path) => {
    const events = new Subject<MessageEvent>();
    @Controller()
    class Abandoned {
      @Sse('feed/:id')
      @LockWith(input('id'))
      feed(@Param('id') _id: string): Observable<MessageEvent> {
        return events;
      }

      @Get('once/:id')
      @LockWith(input('id'))
      once(@Param('id') _id: string): Observable<MessageEvent> {
        return events;
      }
    }
    const http = await startHttp(adapter, { controllers: [Abandoned] });
    const leaving = new AbortController();
    const first = http.request(`/${path}/7`, { signal: leaving.signal });
    await until(() => events.observed, 'the subscription');
    expect(http.store.size).toBe(1);
    leaving.abort();
    await expect(first).rejects.toThrow(/abort/i);
    await until(() => http.telemetry.of('task_executed').length === 1, 'the end of the run');
    expect(events.observed).toBe(false);
    expect(http.store.size).toBe(0);
  });
});

@Controller('skips')
class Skips {
  @Get('value/:id')
  @LockWith(input('id'))
  async value(@Param('id') _id: string): Promise<string | undefined> {
    skip('nothing to do', { code: 'nothing_to_do', secret: 's3cret' });
  }

  @Get('stream/:id')
  @LockWith(input('id'))
  stream(@Param('id') _id: string): Observable<string | undefined> {
    return of(null).pipe(map(() => skip('nothing to do')));
  }

  @Get('own/:id')
  @LockWith(input('id'))
  async own(@Param('id') id: string, @Res() response: WithHeader) {
    if (id === 'answered') response.send({ id });
    skip();
  }

  @Get('next/:id')
  @LockWith(input('id'))
  async next(@Param('id') _id: string, @Next() _next: () => void) {
    skip();
  }

  @Post('created')
  @HttpCode(201)
  @LockWith(input('id'))
  async created(@Body() _body: object): Promise<string | undefined> {
    skip();
  }

  @Get('reshaped/:id')
  @UseInterceptors({ intercept: (_, next) => next.handle().pipe(map(() => 'reshaped')) })
  @LockWith(input('id'))
  async reshaped(@Param('id') _id: string): Promise<string | undefined> {
    skip();
  }

  @Get('broken/:id')
  @UseInterceptors({
    intercept: (_, next) => next.handle().pipe(map((value) => (value as string).length)),
  })
  @LockWith(input('id'))
  async broken(@Param('id') _id: string): Promise<string | undefined> {
    skip();
  }
}

describe.each(ADAPTERS)('a skipped body, on %s', (adapter) => {
  it.each([
    ['a value', '/skips/value/7', 'nothing_to_do'],
    ['an Observable', '/skips/stream/7', 'skipped'],
    ['@Res(), which we answer in its place', '/skips/own/7', 'skipped'],
    ['@Next(), which we answer in its place', '/skips/next/7', 'skipped'],
    ['an inner interceptor that reshapes', '/skips/reshaped/7', 'skipped'],
    ['an inner interceptor that breaks on undefined', '/skips/broken/7', 'skipped'],
  ])('of a handler with %s answers 202', async (_, path, code) => {
    const http = await startHttp(adapter, { controllers: [Skips] });
    const answer = await http.get(path);
    expect(answer.status).toBe(202);
    expect(answer.body).toEqual({ status: 'skipped', code });
    expect(http.store.size).toBe(0);
    expect(http.telemetry.names).toEqual(['task_started', 'lock_acquired', 'task_executed']);
  });

  it('of a handler with @HttpCode answers 202', async () => {
    const http = await startHttp(adapter, { controllers: [Skips] });
    expect(await http.post('/skips/created', { id: 7 })).toMatchObject({
      status: 202,
      body: { status: 'skipped', code: 'skipped' },
    });
  });

  it('that has answered by itself before keeps its answer', async () => {
    const http = await startHttp(adapter, { controllers: [Skips] });
    expect(await http.get('/skips/own/answered')).toMatchObject({
      status: 200,
      body: { id: 'answered' },
    });
    expect((await http.get('/skips/value/7')).status).toBe(202);
  });
});

describe('a handler that answers by itself', () => {
  const POLICIES = [
    ['onBusy', LockWith({ onBusy: 'skip' })],
    ['onLimit', RateLimit({ max: 1, per: 60, onLimit: 'skip' })],
  ] as const;

  it.each(POLICIES)('with @Res() and %s: "skip" fails at boot', async (_, policy) => {
    @Controller()
    class Silent {
      @Get()
      @policy
      async run(@Res() _response: object): Promise<undefined> {}
    }
    await expect(startHttp('express', { controllers: [Silent] })).rejects.toThrow(
      /Silent\.run.*passthrough/s,
    );
  });

  it.each(POLICIES)(
    'with @Redirect() or @Render() and %s: "skip" fails at boot',
    async (_, policy) => {
      @Controller()
      class Elsewhere {
        @Get()
        @policy
        @Redirect('/there')
        async run(): Promise<undefined> {}
      }
      @Controller()
      class Page {
        @Get()
        @Render('page')
        @policy
        async run(): Promise<undefined> {}
      }
      for (const controller of [Elsewhere, Page]) {
        await expect(startHttp('express', { controllers: [controller] })).rejects.toThrow(
          new RegExp(`${controller.name}\\.run.*expected a handler that Nest answers.*got @Re`),
        );
      }
    },
  );

  it.each(POLICIES)('with @Next() and %s: "skip" fails at boot', async (_, policy) => {
    @Controller()
    class Handing {
      @Get()
      @policy
      async run(@Next() _next: () => void): Promise<undefined> {}
    }
    await expect(startHttp('fastify', { controllers: [Handing] })).rejects.toThrow(
      /Handing\.run.*passthrough/s,
    );
  });
});

@Controller({ path: 'scoped', scope: Scope.REQUEST })
class Scoped {
  static made = 0;
  readonly number = ++Scoped.made;

  constructor(private readonly door: Door) {}

  @Get(':id')
  @UseInterceptors(new Watching('method'))
  @LockWith(input('id'))
  async run(@Param('id') _id: string) {
    await this.door.pass();
    return { tid: tid(), number: this.number };
  }
}

@Injectable()
abstract class Exports {
  constructor(protected readonly door: Door) {}

  @Get('run/:id')
  @LockWith(input('id'))
  async run(@Param('id') id: string) {
    await this.door.pass();
    return { id, task: currentInvocation()?.task };
  }

  @Get('override/:id')
  @LockWith(input('id'))
  async override(@Param('id') _id: string): Promise<string> {
    return `base in ${currentInvocation()?.task}`;
  }
}

@Controller('invoices')
class Invoices extends Exports {
  @Get('override/:id')
  override async override(@Param('id') id: string): Promise<string> {
    return `leaf, ${await super.override(id)}`;
  }
}

@Controller('orders')
class Orders extends Exports {}

describe.each(ADAPTERS)('kinds of controllers, on %s', (adapter) => {
  it('a request-scoped controller is one task, whichever instance runs', async () => {
    const door = new Door();
    const http = await startHttp(adapter, {
      controllers: [Scoped],
      providers: [{ provide: Door, useValue: door }],
    });
    seen.length = 0;
    const first = http.get('/scoped/7');
    await until(() => door.inside === 1, 'the first body');
    expect((await http.get('/scoped/7')).status).toBe(409);
    door.open();
    const { tid: firstTid, number } = (await first).body as { tid: string; number: number };
    expect(seen).toEqual([{ who: 'method', in: firstTid, out: firstTid }]);
    const later = (await http.get('/scoped/7')).body as { tid: string; number: number };
    expect(later.number).toBeGreaterThan(number);
    expect(http.store.size).toBe(0);
  });

  it('an inherited handler is one task per subclass', async () => {
    const door = new Door();
    const http = await startHttp(adapter, {
      controllers: [Invoices, Orders],
      providers: [{ provide: Door, useValue: door }],
    });
    const invoices = http.get('/invoices/run/7');
    const orders = http.get('/orders/run/7');
    await until(() => door.inside === 2, 'both bodies');
    expect((await http.get('/invoices/run/7')).status).toBe(409);
    expect((await http.get('/orders/run/7')).status).toBe(409);
    door.open();
    expect((await invoices).body).toEqual({ id: '7', task: 'Invoices.run' });
    expect((await orders).body).toEqual({ id: '7', task: 'Orders.run' });
  });

  it('an overriding handler that carries none of our decorators stays guarded, once', async () => {
    const http = await startHttp(adapter, {
      controllers: [Invoices, Orders],
      providers: [Door],
    });
    expect((await http.get('/invoices/override/7')).text).toBe('leaf, base in Invoices.override');
    expect(http.telemetry.names).toEqual(['task_started', 'lock_acquired', 'task_executed']);
  });
});

@Injectable()
class Quota {
  @RateLimit(header('x-tenant'), { max: 1, per: 60 })
  async perTenant(): Promise<string | undefined> {
    return this.context();
  }

  @LockWith(clientIp())
  async perAddress(): Promise<string | undefined> {
    return currentInvocation()?.lock?.key;
  }

  private context(): string | undefined {
    const request = currentInvocation()?.context?.switchToHttp().getRequest<{
      headers: Record<string, string>;
    }>();
    return request?.headers['x-tenant'];
  }
}

@Controller('open')
class Open {
  constructor(private readonly quota: Quota) {}

  @Get('tenant')
  async tenant(@Query('wait') wait: string) {
    // Other requests run meanwhile: each must find its own context again.
    await new Promise((resolve) => setTimeout(resolve, Number(wait)));
    return this.quota.perTenant();
  }

  @Get('address')
  async address() {
    return this.quota.perAddress();
  }

  @Get('outside')
  async outside(@Req() _request: object) {
    return { invocation: currentInvocation() === undefined };
  }
}

describe.each(ADAPTERS)('an unguarded handler, on %s', (adapter) => {
  const scenario = { controllers: [Open], providers: [Quota] };

  it('lends its request to the guarded service that it calls, each to its own', async () => {
    const http = await startHttp(adapter, scenario);
    const tenants = Array.from({ length: 40 }, (_, position) => `tenant-${position}`);
    const answers = await Promise.all(
      tenants.map((tenant, position) =>
        http.get(`/open/tenant?wait=${(position * 7) % 20}`, { 'x-tenant': tenant }),
      ),
    );
    expect(answers.map(({ text }) => text)).toEqual(tenants);
    expect((await http.get('/open/tenant?wait=0', { 'x-tenant': 'tenant-3' })).status).toBe(429);
    expect((await http.get('/open/address')).text).toBe('cmdx:lock:Quota.perAddress:127.0.0.1');
  });

  it('is no invocation itself, and leaves nothing to calls from elsewhere', async () => {
    const http = await startHttp(adapter, scenario);
    expect((await http.get('/open/outside')).body).toEqual({ invocation: true });
    const quota = http.app.get(Quota);
    // No request around it: the key is blank, and the limit of 1 steps aside.
    expect(await quota.perTenant()).toBeUndefined();
    expect(await quota.perTenant()).toBeUndefined();
    expect(http.store.size).toBe(0);
  });
});

/** What each level of a handler that calls itself saw. */
const levels: { tid: string; cid: string; root: boolean; hasContext: boolean }[] = [];

@Controller()
class CountsDown {
  @Get('down/:n')
  @LockWith(input('n'))
  async down(@Param('n') n: string): Promise<string> {
    const { tid: own, cid, root, context } = currentInvocation()!;
    levels.push({ tid: own, cid, root, hasContext: context !== undefined });
    if (n !== '0') await this.down(String(Number(n) - 1));
    return `from ${n}`;
  }

  @Get('itself')
  @LockWith('one', { wait: '1m' })
  async itself(): Promise<string> {
    return this.itself();
  }
}

describe.each(ADAPTERS)('a handler that calls itself, on %s', (adapter) => {
  it('is a nested invocation at each level, and the outermost ends last', async () => {
    levels.length = 0;
    const { get, telemetry } = await startHttp(adapter, { controllers: [CountsDown] });
    expect((await get('/down/2')).text).toBe('from 2');
    expect(levels.map(({ root }) => root)).toEqual([true, false, false]);
    expect(new Set(levels.map(({ cid }) => cid)).size).toBe(1);
    expect(levels.map(({ hasContext }) => hasContext)).toEqual([true, true, true]);
    const tids = levels.map((level) => level.tid);
    expect(telemetry.of('lock_acquired').map((event) => event.tid)).toEqual(tids);
    expect(telemetry.of('task_executed').map((event) => event.tid)).toEqual(tids.toReversed());
  });

  it('is refused at once for the key that it holds, although it would wait', async () => {
    const { get, telemetry } = await startHttp(adapter, { controllers: [CountsDown] });
    expect(await get('/itself')).toMatchObject({ status: 409, body: { code: 'busy' } });
    const [acquired] = telemetry.of('lock_acquired');
    const [busy] = telemetry.of('lock_busy');
    expect(busy).toMatchObject({ cid: acquired?.cid, payload: { holder: acquired?.tid } });
  });
});

describe.each(ADAPTERS)('inner interceptors after the body has failed, on %s', (adapter) => {
  it('still have the request, and no invocation', async () => {
    const after: unknown[] = [];
    @Injectable()
    class Reporter {
      @LockWith(header('x-tenant'))
      async report(): Promise<void> {
        const { root, lock } = currentInvocation()!;
        after.push({ root, lock });
      }
    }
    @Injectable()
    class Reporting implements NestInterceptor {
      constructor(private readonly reporter: Reporter) {}

      intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
        return next.handle().pipe(
          catchError(async () => {
            after.push(currentInvocation());
            await this.reporter.report();
            return 'reported';
          }),
        );
      }
    }
    @Controller()
    class Failing {
      @Get('failing')
      @UseInterceptors(Reporting)
      @LockWith('failing')
      async run(): Promise<string> {
        throw new Error('no');
      }
    }
    const { get } = await startHttp(adapter, { controllers: [Failing], providers: [Reporter] });
    expect((await get('/failing', { 'x-tenant': 't1' })).text).toBe('reported');
    expect(after).toEqual([
      undefined,
      { root: true, lock: { key: 'cmdx:lock:Reporter.report:t1' } },
    ]);
  });
});
