import { Readable } from 'node:stream';
import { describe, expect, it } from '@jest/globals';
import {
  type ArgumentsHost,
  Body,
  type CanActivate,
  Catch,
  Controller,
  type ExceptionFilter,
  Get,
  HttpException,
  ImATeapotException,
  Injectable,
  type MiddlewareConsumer,
  Module,
  type NestMiddleware,
  type NestModule,
  NotFoundException,
  Param,
  type PipeTransform,
  Post,
  type Type,
  UseFilters,
  UseGuards,
} from '@nestjs/common';
import { APP_FILTER, HttpAdapterHost } from '@nestjs/core';
import {
  DuplicateError,
  fail,
  header,
  IdempotentBy,
  input,
  LockBusyError,
  LockWith,
  MemoryStore,
  RateLimit,
  RateLimitedError,
  RefusalError,
  resultOf,
} from 'nestjs-cmdx';
import { DEAD_OWNER, leaveClaimOfTheDead } from '../../support/dead-owner.js';
import { Door } from '../../support/door.js';
import {
  ADAPTERS,
  type AdapterName,
  type Answer,
  closeAppsAfterEach,
  type HttpApp,
  type HttpScenario,
  startHttp,
} from '../../support/http-app.js';
import { until, waitFor } from '../../support/time.js';

closeAppsAfterEach();

/** A key value that must never be seen in an answer. */
const SECRET = 'ada-s3cret@example.com';

/** Everything a client gets to see. */
const everythingIn = (answer: Answer): string =>
  `${[...answer.headers.entries()].flat().join('\n')}\n${answer.text}`;

/** The public body, with whatever differs from answer to answer left out. */
function publicBody(answer: Answer): Record<string, unknown> {
  const { retryAfter: _, ...body } = answer.body as Record<string, unknown>;
  return body;
}

const BY_AMOUNT = { fingerprint: (body: { amount?: number }) => body.amount } as const;

@Controller('table')
class Table {
  constructor(private readonly door: Door) {}

  @Post('busy')
  @LockWith(input('id'), { ttl: 90 })
  async busy(@Body() _body: object) {
    await this.door.pass();
    return 'done';
  }

  @Post('busy-skipped')
  @LockWith(input('id'), { ttl: 90, onBusy: 'skip', name: 'shared' })
  async busySkipped(@Body() _body: object): Promise<string | undefined> {
    await this.door.pass();
    return 'done';
  }

  @Post('waiting')
  @LockWith(input('id'), { ttl: 90, wait: '30s' })
  async waiting(@Body() _body: object) {
    await this.door.pass();
    return 'done';
  }

  @Post('limited')
  @RateLimit(input('id'), { max: 1, per: 90.5 })
  async limited(@Body() _body: object) {
    return 'done';
  }

  @Post('limited-briefly')
  @RateLimit(input('id'), { max: 1, per: '400ms' })
  async limitedBriefly(@Body() _body: object) {
    return 'done';
  }

  @Post('leaking')
  @RateLimit(input('id'), { max: 1, per: 60, limiter: 'leaky_bucket' })
  async leaking(@Body() _body: object) {
    return 'done';
  }

  @Post('forbidden')
  @RateLimit(input('id'), { max: 0, per: 60 })
  async forbidden(@Body() _body: object) {
    return 'done';
  }

  @Post('limited-skipped')
  @RateLimit(input('id'), { max: 1, per: 90.5, onLimit: 'skip' })
  async limitedSkipped(@Body() _body: object): Promise<string | undefined> {
    return 'done';
  }

  @Post('claimed')
  @IdempotentBy(input('id'), { lease: 90, ...BY_AMOUNT })
  async claimed(@Body() body: { answer?: unknown }): Promise<unknown> {
    await this.door.pass();
    return body.answer ?? Readable.from([]);
  }

  @Post('done-once')
  @IdempotentBy(input('id'), { onDuplicate: 'fail', ...BY_AMOUNT })
  async doneOnce(@Body() _body: object) {
    return 'done';
  }

  @Post('claimed-skipped')
  @IdempotentBy(input('id'), { lease: 90, onDuplicate: 'skip', onInProgress: 'skip', ...BY_AMOUNT })
  async claimedSkipped(@Body() _body: object): Promise<string | undefined> {
    await this.door.pass();
    return 'done';
  }

  @Post('required')
  @LockWith(input('id'), { onBlank: 'fail' })
  async required(@Body() _body: object) {
    return 'done';
  }

  @Post('failing')
  @LockWith(input('id'))
  async failing(@Body() _body: object) {
    fail('The account is closed.', { account: SECRET, code: 'account_closed' });
  }

  @Post('failing-plainly')
  @LockWith(input('id'))
  async failingPlainly(@Body() _body: object) {
    fail('No.', { account: SECRET, code: 7 });
  }
}

describe.each(ADAPTERS)('the answer to a refusal, on %s', (adapter) => {
  const start = async (scenario: HttpScenario = {}): Promise<HttpApp & { door: Door }> => {
    const door = new Door();
    const http = await startHttp(adapter, {
      controllers: [Table],
      providers: [{ provide: Door, useValue: door }],
      ...scenario,
    });
    return { ...http, door };
  };

  it('busy: 409, and nothing of the key or the holder', async () => {
    const { door, ...http } = await start();
    const first = http.post('/table/busy', { id: SECRET });
    await until(() => door.inside === 1, 'the first body');
    const answer = await http.post('/table/busy', { id: SECRET });
    const holder = http.telemetry.of('lock_acquired')[0]?.tid as string;
    door.open();
    expect((await first).status).toBe(201);

    expect(answer.status).toBe(409);
    expect(publicBody(answer)).toEqual({
      statusCode: 409,
      error: 'Conflict',
      message: 'This operation is already running.',
      code: 'busy',
    });
    // The lease may be free long before its ttl is over, so the header would be a wrong promise.
    expect(answer.headers.has('retry-after')).toBe(false);
    const { retryAfter } = answer.body as { retryAfter: number };
    expect(retryAfter).toBeGreaterThan(80);
    expect(retryAfter).toBeLessThanOrEqual(90);
    expect(everythingIn(answer)).not.toContain(holder);
    expectNoSecrets(answer);
    expect(http.telemetry.of('lock_busy')[0]?.payload).toMatchObject({
      lockKey: `cmdx:lock:Table.busy:${SECRET}`,
      holder,
    });
  });

  it('in_progress: 409, and no promise of when it will be over', async () => {
    const { door, ...http } = await start();
    const first = http.post('/table/claimed', { id: SECRET, answer: 'done' });
    await until(() => door.inside === 1, 'the first body');
    const answer = await http.post('/table/claimed', { id: SECRET });
    const holder = http.telemetry.of('idempotency_claimed')[0]?.tid as string;
    door.open();
    expect((await first).status).toBe(201);

    expect(answer.status).toBe(409);
    expect(publicBody(answer)).toEqual({
      statusCode: 409,
      error: 'Conflict',
      message: 'This operation is already in progress.',
      code: 'in_progress',
    });
    // An owner at work renews its lease.
    expect(answer.headers.has('retry-after')).toBe(false);
    const { retryAfter } = answer.body as { retryAfter: number };
    expect(retryAfter).toBeGreaterThan(80);
    expect(retryAfter).toBeLessThanOrEqual(90);
    expect(everythingIn(answer)).not.toContain(holder);
    expectNoSecrets(answer);
    expect(http.telemetry.of('idempotency_in_progress')[0]?.payload).toMatchObject({
      idempotencyKey: `cmdx:idem:Table.claimed:${SECRET}`,
      holder,
    });
  });

  it('duplicate, abandoned and payload_mismatch: what is so, and nothing to wait for', async () => {
    const { door, ...http } = await start();
    door.open();
    await http.post('/table/done-once', { id: SECRET, amount: 1 });
    await http.post('/table/claimed', { id: SECRET });
    await leaveClaimOfTheDead(http.store, 'cmdx:idem:Table.claimed:s3cret', { leaseMs: 1 });
    await waitFor(2);

    for (const [path, sent, status, error, code, message] of [
      [
        'done-once',
        { id: SECRET, amount: 1 },
        409,
        'Conflict',
        'duplicate',
        'This operation has already been done.',
      ],
      [
        'done-once',
        { id: SECRET, amount: 2 },
        422,
        'Unprocessable Entity',
        'payload_mismatch',
        'This idempotency key was used for a different request before.',
      ],
      [
        'claimed',
        { id: SECRET },
        409,
        'Conflict',
        'duplicate',
        'This operation has already been done.',
      ],
      [
        'claimed',
        { id: 's3cret' },
        409,
        'Conflict',
        'abandoned',
        'An earlier attempt of this operation ended with an unknown outcome.',
      ],
    ] as const) {
      const answer = await http.post(`/table/${path}`, sent);
      expect(answer.status).toBe(status);
      expect(answer.body).toEqual({ statusCode: status, error, message, code });
      expect(answer.headers.has('retry-after')).toBe(false);
      expect(everythingIn(answer)).not.toContain(DEAD_OWNER);
      expectNoSecrets(answer);
    }
    expect(http.telemetry.of('idempotency_abandoned')[0]?.payload).toMatchObject({
      holder: DEAD_OWNER,
    });
  });

  it('rate_limited: 429 with Retry-After, whole seconds rounded up', async () => {
    const http = await start();
    await http.post('/table/limited', { id: SECRET });
    const answer = await http.post('/table/limited', { id: SECRET });
    expect(answer.status).toBe(429);
    expect(publicBody(answer)).toEqual({
      statusCode: 429,
      error: 'Too Many Requests',
      message: 'Too many requests, please try again later.',
      code: 'rate_limited',
    });
    expectRetryAfter(answer, 90.5);
    expectNoSecrets(answer);
  });

  it('rate_limited: Retry-After is at least 1, and absent where nothing is ever admitted', async () => {
    const http = await start();
    await http.post('/table/limited-briefly', { id: SECRET });
    const brief = await http.post('/table/limited-briefly', { id: SECRET });
    expect(brief.headers.get('retry-after')).toBe('1');
    expectRetryAfter(brief, 0.4);

    await http.post('/table/leaking', { id: SECRET });
    const leaking = await http.post('/table/leaking', { id: SECRET });
    expectRetryAfter(leaking, 60);

    const forbidden = await http.post('/table/forbidden', { id: SECRET });
    expect(forbidden.status).toBe(429);
    expect(Object.keys(forbidden.body as object).toSorted()).toEqual([
      'code',
      'error',
      'message',
      'statusCode',
    ]);
    expect(forbidden.headers.has('retry-after')).toBe(false);
  });

  it('key_missing and key_invalid: 400', async () => {
    const http = await start();
    const missing = await http.post('/table/required', {});
    expect(missing.status).toBe(400);
    expect(missing.body).toEqual({
      statusCode: 400,
      error: 'Bad Request',
      message: 'A required value is missing.',
      code: 'key_missing',
    });
    const invalid = await http.post('/table/required', { id: { secret: SECRET } });
    expect(invalid.status).toBe(400);
    expect(invalid.body).toEqual({
      statusCode: 400,
      error: 'Bad Request',
      message: 'A value of the request has the wrong form.',
      code: 'key_invalid',
    });
    expectNoSecrets(missing);
    expectNoSecrets(invalid);
    expect(missing.headers.has('retry-after')).toBe(false);
  });

  it('store_unavailable: 503 with Retry-After, never told as busy', async () => {
    // Room for one key, which a lease occupies: a lease is never dropped.
    const { door, ...http } = await start({ cmdx: { store: new MemoryStore({ maxKeys: 1 }) } });
    const first = http.post('/table/busy', { id: 'first' });
    await until(() => door.inside === 1, 'the first body');
    const answer = await http.post('/table/busy', { id: SECRET });
    door.open();
    expect((await first).status).toBe(201);

    expect(answer.status).toBe(503);
    expect(publicBody(answer)).toEqual({
      statusCode: 503,
      error: 'Service Unavailable',
      message: 'The service is temporarily unavailable.',
      code: 'store_unavailable',
    });
    expect(answer.headers.get('retry-after')).toBe('1');
    expectNoSecrets(answer);
    expect(http.telemetry.of('lock_busy')).toEqual([]);
  });

  it('shutting_down: 503 for who waits, while the running body ends in peace', async () => {
    const { door, ...http } = await start();
    const running = http.post('/table/waiting', { id: SECRET });
    await until(() => door.inside === 1, 'the first body');
    const waiting = http.post('/table/waiting', { id: SECRET });
    await until(() => http.telemetry.of('task_started').length === 2, 'the waiter');
    const closed = http.close();
    const answer = await waiting;
    door.open();
    expect(await running).toMatchObject({ status: 201, text: 'done' });
    await closed;

    expect(answer.status).toBe(503);
    expect(answer.body).toEqual({
      statusCode: 503,
      error: 'Service Unavailable',
      message: 'The service is shutting down.',
      code: 'shutting_down',
    });
    expectNoSecrets(answer);
  });

  it('fail(): 422 with the reason, and the metadata is never shown', async () => {
    const http = await start();
    const coded = await http.post('/table/failing', { id: SECRET });
    expect(coded.status).toBe(422);
    expect(coded.body).toEqual({
      statusCode: 422,
      error: 'Unprocessable Entity',
      message: 'The account is closed.',
      code: 'account_closed',
    });
    const plain = await http.post('/table/failing-plainly', { id: SECRET });
    expect(plain.body).toEqual({
      statusCode: 422,
      error: 'Unprocessable Entity',
      message: 'No.',
      code: 'failed',
    });
    expectNoSecrets(coded);
    expectNoSecrets(plain);
    expect(http.store.size).toBe(0);
  });

  it('skip instead of fail: 202, told as skipped', async () => {
    const { door, ...http } = await start();
    const first = http.post('/table/busy-skipped', { id: SECRET });
    await until(() => door.inside === 1, 'the first body');
    const busy = await http.post('/table/busy-skipped', { id: SECRET });
    door.open();
    expect((await first).status).toBe(201);
    await http.post('/table/limited-skipped', { id: SECRET });
    const limited = await http.post('/table/limited-skipped', { id: SECRET });

    for (const [answer, code, atMost] of [
      [busy, 'busy', 90],
      [limited, 'rate_limited', 90.5],
    ] as const) {
      expect(answer.status).toBe(202);
      expect(publicBody(answer)).toEqual({ status: 'skipped', code });
      const { retryAfter } = answer.body as { retryAfter: number };
      expect(retryAfter).toBeGreaterThan(atMost - 10);
      expect(retryAfter).toBeLessThanOrEqual(atMost);
      expectNoSecrets(answer);
    }
  });
});

describe.each(ADAPTERS)('the answer to a skipped duplicate, on %s', (adapter) => {
  it('is 202: while the first is in progress, and once it is done', async () => {
    const door = new Door();
    const http = await startHttp(adapter, {
      controllers: [Table],
      providers: [{ provide: Door, useValue: door }],
    });
    const send = (amount = 1): Promise<Answer> =>
      http.post('/table/claimed-skipped', { id: SECRET, amount });
    const first = send();
    await until(() => door.inside === 1, 'the first body');
    const inProgress = await send();
    door.open();
    expect(await first).toMatchObject({ status: 201, text: 'done' });
    const duplicate = await send();

    expect(inProgress.status).toBe(202);
    expect(publicBody(inProgress)).toEqual({ status: 'skipped', code: 'in_progress' });
    expect(duplicate.status).toBe(202);
    expect(duplicate.body).toEqual({ status: 'skipped', code: 'duplicate' });
    for (const answer of [inProgress, duplicate]) {
      expect(answer.headers.has('retry-after')).toBe(false);
      // It is not the first answer.
      expect(answer.headers.has('idempotent-replayed')).toBe(false);
      expectNoSecrets(answer);
    }
    // A mistake of the client is never skipped.
    expect((await send(2)).status).toBe(422);
  });
});

/** The header and the body tell the same wait, the header in whole seconds. */
function expectRetryAfter(answer: Answer, atMost: number): void {
  const { retryAfter } = answer.body as { retryAfter: number };
  expect(retryAfter).toBeGreaterThan(0);
  expect(retryAfter).toBeLessThanOrEqual(atMost);
  expect(answer.headers.get('retry-after')).toBe(String(Math.max(1, Math.ceil(retryAfter))));
}

function expectNoSecrets(answer: Answer): void {
  expect(everythingIn(answer)).not.toMatch(/s3cret|cmdx:|Table/);
}

@Injectable()
class Desk {
  constructor(private readonly door: Door) {}

  @RateLimit({ max: 0, per: 60, limiter: (quota) => ({ admitted: false, retryAfter: quota.per }) })
  async limited(): Promise<void> {}

  @LockWith('desk', { ttl: 60 })
  async locked(): Promise<void> {
    await this.door.pass();
  }

  @LockWith((value: unknown) => value as string)
  async keyed(_value: unknown): Promise<void> {}

  @LockWith((value: unknown) => value as string, { onBlank: 'fail' })
  async required(_value: unknown): Promise<void> {}

  @LockWith(header('x-tenant'), { onBlank: 'fail' })
  async tenant(): Promise<void> {}
}

/** Which method of the desk a request is sent to, by its header. */
interface DeskRequest {
  readonly headers: Readonly<Record<string, string | undefined>>;
}

function callDesk(desk: Desk, request: DeskRequest): Promise<void> {
  return request.headers['x-call'] === 'locked' ? desk.locked() : desk.limited();
}

@Injectable()
class DeskGuard implements CanActivate {
  constructor(private readonly desk: Desk) {}

  async canActivate(context: Parameters<CanActivate['canActivate']>[0]): Promise<boolean> {
    await callDesk(this.desk, context.switchToHttp().getRequest<DeskRequest>());
    return true;
  }
}

@Injectable()
class DeskPipe implements PipeTransform {
  constructor(private readonly desk: Desk) {}

  async transform(value: 'limited' | 'locked'): Promise<string> {
    await this.desk[value]();
    return value;
  }
}

@Injectable()
class DeskMiddleware implements NestMiddleware {
  constructor(private readonly desk: Desk) {}

  async use(request: DeskRequest, _response: unknown, next: () => void): Promise<void> {
    await callDesk(this.desk, request);
    next();
  }
}

@Controller('desk')
class DeskController {
  constructor(private readonly desk: Desk) {}

  @Get('guard/:call')
  @UseGuards(DeskGuard)
  async guard() {}

  @Get('pipe/:call')
  async pipe(@Param('call', DeskPipe) _call: string) {}

  @Get('middleware/:call')
  async middleware() {}

  @Get('handler/:call')
  async handler(@Param('call') call: 'limited' | 'locked') {
    await this.desk[call]();
  }

  @Get('guarded-handler/:call')
  @LockWith('outer')
  async guardedHandler(@Param('call') call: 'limited' | 'locked') {
    await this.desk[call]();
  }

  @Get('sync-handler/:call')
  syncHandler(@Param('call') call: 'limited' | 'locked') {
    return this.desk[call]();
  }

  @Get('invalid')
  async invalid() {
    await this.desk.keyed({ secret: SECRET });
  }

  @Get('blank')
  async blank() {
    await this.desk.required('');
  }

  @Get('tenant')
  async tenant() {
    await this.desk.tenant();
  }
}

@Module({})
class DeskModule implements NestModule {
  configure(consumer: MiddlewareConsumer): void {
    consumer.apply(DeskMiddleware).forRoutes('desk/middleware/*path');
  }
}

async function startDesk(
  adapter: AdapterName,
  scenario: HttpScenario = {},
): Promise<{ http: HttpApp; release: () => Promise<void> }> {
  const door = new Door();
  const desk = {
    module: DeskModule,
    controllers: [DeskController],
    providers: [Desk, DeskPipe, DeskGuard, { provide: Door, useValue: door }],
  };
  const http = await startHttp(adapter, { ...scenario, imports: [desk] });
  const holding = http.app.get(Desk, { strict: false }).locked();
  await until(() => door.inside === 1, 'the holder of the desk');
  const release = async (): Promise<void> => {
    door.open();
    await holding;
  };
  return { http, release };
}

const PLACES = ['guard', 'pipe', 'middleware', 'handler', 'guarded-handler', 'sync-handler'];
const CALLS = [
  ['limited', 429, 'rate_limited'],
  ['locked', 409, 'busy'],
] as const;

describe.each(ADAPTERS)('a refused guarded service, on %s', (adapter) => {
  it.each(PLACES)('called in a %s is 409, and 429 with Retry-After', async (place) => {
    const { http, release } = await startDesk(adapter);
    for (const [call, status, code] of CALLS) {
      const answer = await http.get(`/desk/${place}/${call}`, { 'x-call': call });
      expect({ call, status: answer.status }).toEqual({ call, status });
      expect(answer.body).toMatchObject({ statusCode: status, code });
      expect(Object.keys(answer.body as object).toSorted()).toEqual([
        'code',
        'error',
        'message',
        'retryAfter',
        'statusCode',
      ]);
      if (code === 'rate_limited') expectRetryAfter(answer, 60);
      else expect(answer.headers.has('retry-after')).toBe(false);
      expect(everythingIn(answer)).not.toMatch(/cmdx:|Desk/);
    }
    await release();
    // The place lets pass what is not refused any more.
    expect((await http.get(`/desk/${place}/locked`, { 'x-call': 'locked' })).status).toBe(200);
  });

  it('whose key did not come from the request is 500 without a word about it', async () => {
    const { http, release } = await startDesk(adapter);
    for (const [path, code] of [
      ['invalid', 'key_invalid'],
      ['blank', 'key_missing'],
    ]) {
      const answer = await http.get(`/desk/${path}`);
      expect(answer.status).toBe(500);
      expect(answer.body).toEqual({
        statusCode: 500,
        error: 'Internal Server Error',
        message: 'Internal server error',
        code,
      });
    }
    // A header is the client's own.
    expect(await http.get('/desk/tenant')).toMatchObject({
      status: 400,
      body: { code: 'key_missing' },
    });
    expect((await http.get('/desk/tenant', { 'x-tenant': 'acme' })).status).toBe(200);
    await release();
  });
});

/** What the user's own filters have caught. */
const caught: unknown[] = [];

/** The catch-all filter that Nest's documentation shows. */
@Catch()
class CatchAll implements ExceptionFilter {
  constructor(private readonly host: HttpAdapterHost) {}

  catch(exception: unknown, host: ArgumentsHost): void {
    caught.push(exception);
    const status = exception instanceof HttpException ? exception.getStatus() : 500;
    this.host.httpAdapter.reply(host.switchToHttp().getResponse(), { mine: status }, status);
  }
}

@Catch(HttpException)
class CatchHttp extends CatchAll {}

@Catch(RefusalError)
class CatchRefusal extends CatchAll {}

@Catch(LockBusyError, RateLimitedError, DuplicateError)
class CatchByClass extends CatchAll {}

const FILTERS: readonly [name: string, filter: Type<CatchAll>][] = [
  ['catch-all', CatchAll],
  ['@Catch(HttpException)', CatchHttp],
  ['@Catch(RefusalError)', CatchRefusal],
  ['@Catch(LockBusyError, RateLimitedError, DuplicateError)', CatchByClass],
];

type Level = 'method' | 'controller' | 'global' | 'APP_FILTER';
const LEVELS: readonly Level[] = ['method', 'controller', 'global', 'APP_FILTER'];

/** A controller that carries the filter at one level. */
function filtered(filter: Type<CatchAll>, level: Level): Type {
  const nothing = (): void => undefined;
  @Controller('filtered')
  @(level === 'controller' ? UseFilters(filter) : nothing)
  class Filtered {
    constructor(private readonly desk: Desk) {}

    @Get('guarded')
    @(level === 'method' ? UseFilters(filter) : nothing)
    @RateLimit({ max: 0, per: 60 })
    async guarded() {}

    @Get('once')
    @(level === 'method' ? UseFilters(filter) : nothing)
    @IdempotentBy('once', { onDuplicate: 'fail' })
    async once() {}

    @Get('service/:call')
    @(level === 'method' ? UseFilters(filter) : nothing)
    async service(@Param('call') call: 'limited' | 'locked') {
      await this.desk[call]();
    }

    @Get('missing')
    @(level === 'method' ? UseFilters(filter) : nothing)
    @LockWith('missing')
    async missing() {
      throw new NotFoundException('no such account');
    }
  }
  return Filtered;
}

describe.each(ADAPTERS)('a filter of the user’s own, on %s', (adapter) => {
  const combinations = FILTERS.flatMap(([name, filter]) =>
    LEVELS.map((level) => [name, level, filter] as const),
  );

  it.each(combinations)('(%s, %s) catches refusals in our place', async (name, level, filter) => {
    const door = new Door();
    const http = await startHttp(adapter, {
      controllers: [filtered(filter, level)],
      providers: [
        Desk,
        { provide: Door, useValue: door },
        ...(level === 'APP_FILTER' ? [{ provide: APP_FILTER, useClass: filter }] : []),
      ],
      setUp: (app) => {
        if (level === 'global') app.useGlobalFilters(new filter(app.get(HttpAdapterHost)));
      },
    });
    const holding = http.app.get(Desk).locked();
    await until(() => door.inside === 1, 'the holder of the desk');

    caught.length = 0;
    const guarded = await http.get('/filtered/guarded');
    expect(guarded).toMatchObject({ status: 429, body: { mine: 429 } });
    for (const [call, status] of CALLS) {
      const answer = await http.get(`/filtered/service/${call}`);
      expect(answer).toMatchObject({ status, body: { mine: status } });
    }
    expect((await http.get('/filtered/once')).status).toBe(200);
    expect(await http.get('/filtered/once')).toMatchObject({ status: 409, body: { mine: 409 } });
    expect(caught.map((error) => (error as Error).constructor.name)).toEqual([
      'RateLimitedError',
      'RateLimitedError',
      'LockBusyError',
      'DuplicateError',
    ]);

    const missing = await http.get('/filtered/missing');
    expect(missing.status).toBe(404);
    const catches404 = name === 'catch-all' || name === '@Catch(HttpException)';
    expect(missing.body).toEqual(
      catches404
        ? { mine: 404 }
        : { statusCode: 404, error: 'Not Found', message: 'no such account' },
    );
    door.open();
    await holding;
  });
});

class BusinessError extends Error {}

/** Whatever a body throws, by name. */
const THROWN: Readonly<Record<string, unknown>> = {
  http: new NotFoundException('no such account'),
  object: new HttpException({ custom: 'shape', retryAfter: 5 }, 418),
  error: new BusinessError('out of stock'),
  frozen: Object.freeze(new BusinessError('frozen')),
  string: 'a bare string',
  nothing: null,
};

@Controller('thrown')
class Thrown {
  @Get('guarded/:what')
  @LockWith(input('what'))
  @RateLimit(input('what'), { max: 100, per: 60 })
  async guarded(@Param('what') what: string) {
    throw THROWN[what];
  }

  @Get('bare/:what')
  async bare(@Param('what') what: string) {
    throw THROWN[what];
  }

  @Get('sync-bare')
  syncBare() {
    throw new ImATeapotException();
  }
}

describe.each(ADAPTERS)('errors of the body, on %s', (adapter) => {
  it.each(Object.keys(THROWN))('answer what they answer without us (%s)', async (what) => {
    const http = await startHttp(adapter, { controllers: [Thrown] });
    const guarded = await http.get(`/thrown/guarded/${what}`);
    const bare = await http.get(`/thrown/bare/${what}`);
    expect({ status: guarded.status, text: guarded.text }).toEqual({
      status: bare.status,
      text: bare.text,
    });
    expect(guarded.headers.get('content-type')).toBe(bare.headers.get('content-type'));
    expect(guarded.headers.has('retry-after')).toBe(false);
    expect(http.telemetry.names).toContain('lock_acquired');
    expect(await http.store.get(`cmdx:lock:Thrown.guarded:${what}`)).toBeUndefined();
  });

  it('a NotFoundException stays 404, and so does a route that is not there', async () => {
    const http = await startHttp(adapter, { controllers: [Thrown] });
    expect(await http.get('/thrown/guarded/http')).toMatchObject({
      status: 404,
      body: { statusCode: 404, error: 'Not Found', message: 'no such account' },
    });
    expect(await http.get('/nowhere')).toMatchObject({
      status: 404,
      body: { statusCode: 404, error: 'Not Found', message: 'Cannot GET /nowhere' },
    });
    expect((await http.get('/thrown/sync-bare')).status).toBe(418);
  });

  it.each(Object.keys(THROWN))('are the very same object in a filter (%s)', async (what) => {
    const http = await startHttp(adapter, {
      controllers: [Thrown],
      providers: [{ provide: APP_FILTER, useClass: CatchAll }],
    });
    caught.length = 0;
    await http.get(`/thrown/guarded/${what}`);
    expect(caught).toHaveLength(1);
    expect(caught[0]).toBe(THROWN[what]);
    const result = resultOf(caught[0]);
    if (typeof THROWN[what] === 'object' && THROWN[what] !== null) {
      expect(result).toMatchObject({ status: 'failed', task: 'Thrown.guarded' });
    } else {
      expect(result).toBeUndefined();
    }
  });
});
