import { describe, expect, it } from '@jest/globals';
import {
  Body,
  Controller,
  Get,
  Headers,
  Injectable,
  Param,
  ParseIntPipe,
  Post,
  Query,
  Req,
  ValidationPipe,
} from '@nestjs/common';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { Transform, Type } from 'class-transformer';
import { IsEmail, IsInt, IsOptional, IsString, Min } from 'class-validator';
import {
  arg,
  clientIp,
  currentInvocation,
  fromRequest,
  header,
  input,
  type Invocation,
  type KeyResolver,
  LockWith,
  Named,
  RateLimit,
  segment,
} from 'nestjs-cmdx';
import { ADAPTERS, type Answer, closeAppsAfterEach, startHttp } from '../../support/http-app.js';

closeAppsAfterEach();

/** The segment of the lease that the running handler holds. */
const heldSegment = (): string | undefined =>
  currentInvocation()?.lock?.key.replace(/^cmdx:lock:\w+\.\w+:/, '');

class RegisterDto {
  @IsEmail()
  @Transform(({ value }: { value: unknown }) =>
    typeof value === 'string' ? value.trim().toLowerCase() : value,
  )
  email!: string;

  @Type(() => Number)
  @IsInt()
  @Min(18)
  age!: number;

  @IsOptional()
  @IsString()
  note?: string;
}

const validation = new ValidationPipe({ transform: true, whitelist: true });

@Controller('accounts')
class Accounts {
  @Post('register')
  @LockWith(input('email'))
  @RateLimit(input('email'), { max: 5, per: 60 })
  async register(@Body(validation) dto: RegisterDto) {
    return { lock: heldSegment(), isDto: dto instanceof RegisterDto };
  }

  @Post('adults')
  @LockWith((dto: RegisterDto) => (dto instanceof RegisterDto ? dto.age + 1 : 'raw'))
  async adults(@Body(validation) _dto: RegisterDto) {
    return { lock: heldSegment() };
  }

  @Get('number/:id')
  @LockWith((id: number) => (typeof id === 'number' ? `number ${id}` : 'raw'))
  @RateLimit(input('id'), { max: 5, per: 60 })
  async number(@Param('id', ParseIntPipe) id: number) {
    return { id, lock: heldSegment() };
  }
}

describe.each(ADAPTERS)('pipes run first, on %s', (adapter) => {
  it.each([
    ['a wrong e-mail', { email: 'nobody', age: 40 }],
    ['a wrong age', { email: 'a@example.com', age: 17 }],
    ['an empty body', {}],
  ])('a body with %s is refused by ValidationPipe and costs nothing', async (_, body) => {
    const http = await startHttp(adapter, { controllers: [Accounts] });
    const answer = await http.post('/accounts/register', body);
    expect(answer.status).toBe(400);
    expect(answer.body).not.toHaveProperty('code');
    expect(http.store.size).toBe(0);
    expect(http.telemetry.events).toEqual([]);
  });

  it('a parameter that ParseIntPipe refuses costs nothing, and the quota is whole afterwards', async () => {
    const http = await startHttp(adapter, { controllers: [Accounts] });
    for (let each = 0; each < 6; each++) {
      expect((await http.get('/accounts/number/seven')).status).toBe(400);
    }
    expect(http.store.size).toBe(0);
    expect(http.telemetry.events).toEqual([]);
    for (let each = 0; each < 5; each++) {
      expect((await http.get('/accounts/number/7')).status).toBe(200);
    }
    expect((await http.get('/accounts/number/7')).status).toBe(429);
  });

  it('the resolver sees the transformed DTO', async () => {
    const http = await startHttp(adapter, { controllers: [Accounts] });
    const registered = await http.post('/accounts/register', {
      email: '  Ada@Example.COM ',
      age: '36',
    });
    expect(registered.body).toEqual({ lock: 'ada@example.com', isDto: true });
    expect(await http.store.get('cmdx:rl:Accounts.register:ada@example.com')).toBe('1');
    const adult = await http.post('/accounts/adults', { email: 'ada@example.com', age: '36' });
    expect(adult.body).toEqual({ lock: '37' });
  });

  it('the resolver sees what ParseIntPipe made of the parameter', async () => {
    const http = await startHttp(adapter, { controllers: [Accounts] });
    const answer = await http.get('/accounts/number/0042');
    expect(answer.body).toEqual({ id: 42, lock: 'number 42' });
    expect(await http.store.get('cmdx:rl:Accounts.number:42')).toBe('1');
  });
});

@Controller('keys')
class Keys {
  @Post('by-param/:id')
  @LockWith(input('id'))
  async byParam(@Param('id') _id: string, @Body() _body: object) {
    return heldSegment();
  }

  @Post('by-query')
  @LockWith(input('id'))
  async byQuery(@Body() _body: object, @Query('id') _id: string) {
    return heldSegment();
  }

  @Post('by-body-field')
  @LockWith(input('id'))
  async byBodyField(@Query() _query: object, @Body('id') _id: string) {
    return heldSegment();
  }

  @Post('by-header')
  @LockWith(input('x-tenant'))
  async byHeader(@Headers('x-tenant') _tenant: string, @Body() _body: object) {
    return heldSegment();
  }

  @Post('anywhere/:region')
  @LockWith(input('tenant'))
  async anywhere(@Param() _params: object, @Query() _query: object, @Body() _body: object) {
    return heldSegment();
  }

  @Post('nested')
  @LockWith(input('order.id'))
  async nested(@Body() _body: object) {
    return heldSegment();
  }

  @Post('inherited')
  @LockWith(input('order.constructor.name'))
  async inherited(@Body() _body: object) {
    return heldSegment() ?? 'stepped aside';
  }

  @Post('whole/:id')
  @LockWith(input('id'))
  async whole(@Param() _params: object, @Body() _body: object) {
    return heldSegment();
  }

  @Post('nested-field')
  @LockWith(input('order.id'))
  async nestedField(@Body('order') _order: object, @Query() _query: object) {
    return heldSegment();
  }

  @Post('request')
  @LockWith(input('url'))
  async request(@Req() _request: object, @Body() _body: object) {
    return heldSegment() ?? 'stepped aside';
  }

  @Post('named')
  @LockWith(input('second'))
  async named(@Body() _body: object, @Named('second') @Query('anything') _other: string) {
    return heldSegment();
  }

  @Post('position')
  @LockWith(arg(1, 'email'))
  async position(@Query() _query: object, @Body() _body: object) {
    return heldSegment();
  }

  @Post('composed/:tenant')
  @LockWith(segment`${input('tenant')}:${input('account')}`)
  async composed(@Param('tenant') _tenant: string, @Body() _body: object) {
    return heldSegment() ?? 'stepped aside';
  }
}

describe.each(ADAPTERS)('who chooses the key, on %s', (adapter) => {
  it('a body field added by a client cannot choose a key that another argument supplies', async () => {
    const http = await startHttp(adapter, { controllers: [Keys] });
    const forged = { id: 'forged', 'x-tenant': 'forged', second: 'forged' };
    expect((await http.post('/keys/by-param/mine', forged)).text).toBe('mine');
    expect((await http.post('/keys/by-query?id=mine', forged)).text).toBe('mine');
    expect((await http.post('/keys/by-body-field?id=forged', { id: 'mine' })).text).toBe('mine');
    expect((await http.post('/keys/by-header', forged, { 'x-tenant': 'mine' })).text).toBe('mine');
    expect((await http.post('/keys/named?anything=mine', forged)).text).toBe('mine');
    expect((await http.post('/keys/nested-field?order=x', { order: { id: 'mine' } })).text).toBe(
      'mine',
    );
  });

  it('a value left out is not looked for elsewhere when another argument is named so', async () => {
    const http = await startHttp(adapter, { controllers: [Keys] });
    expect((await http.post('/keys/by-query', { id: 'forged' })).text).toBe('');
    expect(http.store.size).toBe(0);
    expect(http.telemetry.of('policy_bypassed')).toHaveLength(1);
  });

  it('two arguments that carry the name are ambiguous and answer 400', async () => {
    const http = await startHttp(adapter, { controllers: [Keys] });
    expect((await http.post('/keys/anywhere/eu?tenant=a')).text).toBe('a');
    expect((await http.post('/keys/anywhere/eu', { tenant: 'b' })).text).toBe('b');
    const both = await http.post('/keys/anywhere/eu?tenant=a', { tenant: 'a' });
    expect(both).toMatchObject({ status: 400, body: { code: 'key_invalid' } });
    expect((await http.post('/keys/whole/mine', { other: 1 })).text).toBe('mine');
    const forged = await http.post('/keys/whole/mine', { id: 'forged' });
    expect(forged).toMatchObject({ status: 400, body: { code: 'key_invalid' } });
    expect(http.store.size).toBe(0);
  });

  it('paths lead through own properties only', async () => {
    const http = await startHttp(adapter, { controllers: [Keys] });
    expect((await http.post('/keys/nested', { order: { id: 9 } })).text).toBe('9');
    expect((await http.post('/keys/nested', { 'order.id': 9 })).text).toBe('');
    expect((await http.post('/keys/inherited', { order: {} })).text).toBe('stepped aside');
    const own = { order: { constructor: { name: 'mine' } } };
    expect((await http.post('/keys/inherited', own)).text).toBe('mine');
  });

  it('the request object is never searched', async () => {
    const http = await startHttp(adapter, { controllers: [Keys] });
    expect((await http.post('/keys/request')).text).toBe('stepped aside');
    expect((await http.post('/keys/request', { url: 'mine' })).text).toBe('mine');
  });

  it('arg() takes the position whatever the other arguments carry', async () => {
    const http = await startHttp(adapter, { controllers: [Keys] });
    expect((await http.post('/keys/position?email=forged', { email: 'mine' })).text).toBe('mine');
  });

  it('segment`` escapes its parts, and a blank part makes the whole blank', async () => {
    const http = await startHttp(adapter, { controllers: [Keys] });
    const path = '/keys/composed';
    expect((await http.post(`${path}/a`, { account: 'b:c' })).text).toBe('a:b%3Ac');
    expect((await http.post(`${path}/a%3Ab`, { account: 'c' })).text).toBe('a%3Ab:c');
    expect((await http.post(`${path}/a%25`, { account: 7 })).text).toBe('a%25:7');
    expect((await http.post(`${path}/a`, { account: '' })).text).toBe('stepped aside');
    expect((await http.post(`${path}/a`, { account: { b: 1 } })).status).toBe(400);
  });
});

@Controller('values')
class Values {
  @Post('body')
  @LockWith(input('id'))
  @RateLimit(input('id'), { max: 100, per: 60 })
  async body(@Body() _body: object) {
    return heldSegment() ?? 'stepped aside';
  }

  @Get('query')
  @LockWith(input('id'))
  async query(@Query() _query: object) {
    return heldSegment() ?? 'stepped aside';
  }

  @Get('query-field')
  @LockWith(input('id'))
  async queryField(@Query('id') _id: string) {
    return heldSegment() ?? 'stepped aside';
  }

  @Post('required')
  @RateLimit(input('id'), { max: 1, per: 60, onBlank: 'fail' })
  @LockWith(input('id'))
  async required(@Body() _body: object) {
    return heldSegment();
  }

  @Post('function')
  @LockWith((body: { id: string }) => body.id)
  async function(@Body() _body: { id: string }) {
    return heldSegment();
  }
}

describe('an application that parses nested query parameters', () => {
  it('answers 400 to ?id[$ne]=1', async () => {
    const http = await startHttp('express', {
      controllers: [Values],
      setUp: (app) => (app as NestExpressApplication).set('query parser', 'extended'),
    });
    for (const path of ['/values/query', '/values/query-field']) {
      expect(await http.get(`${path}?id[$ne]=1`)).toMatchObject({
        status: 400,
        body: { code: 'key_invalid' },
      });
    }
  });
});

describe.each(ADAPTERS)('what a key may be, on %s', (adapter) => {
  it.each([
    ['an object', { secret: 's3cret' }],
    ['an empty object', {}],
    ['an array', ['s3cret']],
    ['an empty array', []],
    ['a boolean', true],
  ])('%s in the body answers 400 and costs nothing', async (_, id) => {
    const http = await startHttp(adapter, { controllers: [Values] });
    for (const path of ['/values/body', '/values/function']) {
      const answer = await http.post(path, { id });
      expect(answer.status).toBe(400);
      expect(answer.body).toEqual({
        statusCode: 400,
        error: 'Bad Request',
        message: 'A value of the request has the wrong form.',
        code: 'key_invalid',
      });
      expect(everythingIn(answer)).not.toMatch(/s3cret|cmdx:|Values/);
    }
    expect(http.store.size).toBe(0);
  });

  it('?id=1&id=2 answers 400', async () => {
    const http = await startHttp(adapter, { controllers: [Values] });
    for (const path of ['/values/query', '/values/query-field']) {
      expect(await http.get(`${path}?id=1&id=2`)).toMatchObject({
        status: 400,
        body: { code: 'key_invalid' },
      });
      expect((await http.get(`${path}?id=1`)).text).toBe('1');
    }
  });

  it.each([
    ['a number', 42, '42'],
    ['zero', 0, '0'],
    ['a text', 'plain text / ä', 'plain text / ä'],
  ])('%s is a key', async (_, id, key) => {
    const http = await startHttp(adapter, { controllers: [Values] });
    expect((await http.post('/values/body', { id })).text).toBe(key);
  });

  it('a 10 kB key works, and two of them that differ in the last letter are two keys', async () => {
    const http = await startHttp(adapter, { controllers: [Values] });
    const long = 'k'.repeat(10 * 1024);
    const first = await http.post('/values/body', { id: `${long}a` });
    const second = await http.post('/values/body', { id: `${long}b` });
    expect(first.text).toMatch(/^sha256-[0-9a-f]{64}$/);
    expect(second.text).toMatch(/^sha256-[0-9a-f]{64}$/);
    expect(second.text).not.toBe(first.text);
    expect(await http.store.get(`cmdx:rl:Values.body:${first.text}`)).toBe('1');
    // Who sends the hash itself does not get at the counter of the long key.
    const hash = await http.post('/values/body', { id: first.text });
    expect(hash.text).not.toBe(first.text);
  });

  it.each([
    ['null', { id: null }],
    ['an empty text', { id: '' }],
    ['nothing', {}],
  ])('%s steps aside: the body runs every time and nothing is written', async (_, body) => {
    const http = await startHttp(adapter, { controllers: [Values] });
    for (let each = 0; each < 3; each++) {
      expect(await http.post('/values/body', body)).toMatchObject({
        status: 201,
        text: 'stepped aside',
      });
    }
    expect(http.store.size).toBe(0);
    const bypassed = http.telemetry.of('policy_bypassed').map(({ payload }) => payload);
    const policies = ['rateLimit', 'lock', 'rateLimit', 'lock', 'rateLimit', 'lock'];
    expect(bypassed).toEqual(policies.map((policy) => ({ policy, reason: 'blank' })));
  });

  it('onBlank: "fail" answers 400 and the body does not run', async () => {
    const http = await startHttp(adapter, { controllers: [Values] });
    const answer = await http.post('/values/required', { id: '' });
    expect(answer.body).toEqual({
      statusCode: 400,
      error: 'Bad Request',
      message: 'A required value is missing.',
      code: 'key_missing',
    });
    expect(answer.status).toBe(400);
    expect(http.store.size).toBe(0);
    expect((await http.post('/values/required', { id: 'x' })).text).toBe('x');
  });
});

function everythingIn(answer: Answer): string {
  return `${[...answer.headers.entries()].flat().join('\n')}\n${answer.text}`;
}

@Injectable()
class TenantDirectory {
  async idOf(host: string): Promise<string> {
    return `tenant of ${host}`;
  }
}

@Injectable()
class TenantKey implements KeyResolver {
  constructor(private readonly directory: TenantDirectory) {}

  async call(invocation: Invocation): Promise<string> {
    const [host] = invocation.args as [string];
    return this.directory.idOf(host);
  }
}

interface UserRequest {
  readonly headers: Readonly<Record<string, string | undefined>>;
}

@Controller('request')
class RequestKeys {
  prefix = 'instance';

  @Get('header')
  @LockWith(header('X-Tenant'))
  async header() {
    return heldSegment() ?? 'stepped aside';
  }

  @Get('ip')
  @LockWith(clientIp())
  async ip() {
    return heldSegment();
  }

  @Get('sync')
  @LockWith(fromRequest<UserRequest>((request) => request.headers['x-user']))
  async sync() {
    return heldSegment() ?? 'stepped aside';
  }

  @Get('async')
  @RateLimit(fromRequest<UserRequest>(async (request) => request.headers['x-user']), {
    max: 1,
    per: 60,
  })
  async async() {
    return 'ran';
  }

  @Get('bad')
  @LockWith(fromRequest<UserRequest>((request) => ({ ...request.headers }) as never))
  async bad() {
    return 'ran';
  }

  @Get('object')
  @LockWith({
    call: ({ task, args, instance }: Invocation) =>
      `${task} of ${(instance as RequestKeys).prefix} ${String(args[0])}`,
  })
  async object(@Query('q') _q: string) {
    return currentInvocation()?.lock?.key;
  }

  @Get('class')
  @LockWith(TenantKey)
  async class(@Query('host') _host: string) {
    return heldSegment();
  }

  @Get('this')
  @LockWith(function (this: RequestKeys, q: string) {
    return `${this.prefix} ${q} ${currentInvocation()?.task}`;
  } as (q: string) => string)
  async this(@Query('q') _q: string) {
    return heldSegment();
  }
}

describe.each(ADAPTERS)('keys from the request, on %s', (adapter) => {
  const scenario = { controllers: [RequestKeys], providers: [TenantKey, TenantDirectory] };

  it('header() reads a header whatever its letter case, and steps aside without it', async () => {
    const http = await startHttp(adapter, scenario);
    expect((await http.get('/request/header', { 'x-TENANT': 'acme' })).text).toBe('acme');
    expect((await http.get('/request/header')).text).toBe('stepped aside');
  });

  it('fromRequest() may answer at once or later', async () => {
    const http = await startHttp(adapter, scenario);
    expect((await http.get('/request/sync', { 'x-user': 'ada' })).text).toBe('ada');
    expect((await http.get('/request/sync')).text).toBe('stepped aside');
    expect((await http.get('/request/async', { 'x-user': 'ada' })).status).toBe(200);
    expect((await http.get('/request/async', { 'x-user': 'ada' })).status).toBe(429);
    expect((await http.get('/request/async', { 'x-user': 'bob' })).status).toBe(200);
    expect(await http.store.get('cmdx:rl:RequestKeys.async:ada')).toBe('2');
  });

  it('a wrong value from the request answers 400 and shows none of it', async () => {
    const http = await startHttp(adapter, scenario);
    const answer = await http.get('/request/bad', { 'x-user': 's3cret' });
    expect(answer).toMatchObject({ status: 400, body: { code: 'key_invalid' } });
    expect(everythingIn(answer)).not.toMatch(/s3cret|cmdx:/);
  });

  it('a resolver object gets the invocation', async () => {
    const http = await startHttp(adapter, scenario);
    expect((await http.get('/request/object?q=7')).text).toBe(
      'cmdx:lock:RequestKeys.object:RequestKeys.object of instance 7',
    );
  });

  it('an injectable resolver class is found in the application', async () => {
    const http = await startHttp(adapter, scenario);
    expect((await http.get('/request/class?host=acme')).text).toBe('tenant of acme');
  });

  it('a key function has the controller as `this` and the invocation as the current one', async () => {
    const http = await startHttp(adapter, scenario);
    expect((await http.get('/request/this?q=7')).text).toBe('instance 7 RequestKeys.this');
  });

  it('clientIp() is the peer, whatever the client claims, as long as no proxy is trusted', async () => {
    const http = await startHttp(adapter, scenario);
    const claimed = { 'x-forwarded-for': '203.0.113.7' };
    expect((await http.get('/request/ip', claimed)).text).toBe('127.0.0.1');
  });

  it.each([
    ['an IPv4 address', '203.0.113.7', '203.0.113.7'],
    ['an IPv4 address mapped into IPv6', '::ffff:203.0.113.7', '203.0.113.7'],
    ['one written in hex', '::ffff:cb00:7107', '203.0.113.7'],
    ['an IPv6 address', '2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['a short IPv6 address', '2001:db8::1', '2001:db8:0:0::/64'],
    ['the same in capitals', '2001:DB8:0:0:FFFF::1', '2001:db8:0:0::/64'],
    ['the IPv6 loopback', '::1', '0:0:0:0::/64'],
  ])('behind a trusted proxy clientIp() of %s counts %s as %s', async (_, address, key) => {
    const http = await startHttp(adapter, { ...scenario, trustProxy: true });
    expect((await http.get('/request/ip', { 'x-forwarded-for': address })).text).toBe(key);
  });

  it('a resolver class that no module provides stops the boot', async () => {
    await expect(startHttp(adapter, { controllers: [RequestKeys] })).rejects.toThrow(
      /RequestKeys\.class.*TenantKey/,
    );
  });
});
