import { describe, expect, it } from '@jest/globals';
import {
  Body,
  Controller,
  Headers,
  Injectable,
  mixin,
  Post,
  Redirect,
  Res,
  type Type,
  UploadedFile,
  UseInterceptors,
} from '@nestjs/common';
import { FileInterceptor } from '@nestjs/platform-express';
import {
  arg,
  fromRequest,
  header,
  IdempotencyRecords,
  IdempotentBy,
  input,
  LockWith,
  MemoryStore,
  RateLimit,
  segment,
  StoreKey,
} from 'nestjs-cmdx';
import { Observable, of } from 'rxjs';
import { boot, closeApplicationsAfterEach } from '../support/application.js';
import { closeAppsAfterEach, startHttp } from '../support/http-app.js';

interface WithHeaders {
  readonly headers: Readonly<Record<string, string | undefined>>;
}

describe('is what README.md says of @IdempotentBy really so', () => {
  closeApplicationsAfterEach();
  closeAppsAfterEach();

  it('of the two faces of a duplicate?', async () => {
    @Injectable()
    class Service {
      @IdempotentBy(arg(0))
      async replays(_key: string): Promise<number> {
        return 42;
      }

      @IdempotentBy(arg(0), { onDuplicate: 'skip' })
      async skips(_key: string): Promise<number | undefined> {
        return 42;
      }
    }
    const { get, cmdx } = await boot({ providers: [Service] });
    const service = get(Service);
    const secondCall = async (method: 'replays' | 'skips') => {
      await service[method]('k');
      const value = await service[method]('k');
      const { status, metadata, ...result } = await cmdx.execute(() => service[method]('k'));
      return [value, status, metadata.code, result.value];
    };
    expect(await secondCall('replays')).toEqual([42, 'skipped', 'duplicate', 42]);
    expect(await secondCall('skips')).toEqual([undefined, 'skipped', 'duplicate', undefined]);
  });

  it('of a lock with and without a wait, and of a rate limit, around it?', async () => {
    @Injectable()
    class Service {
      runs = 0;

      @LockWith(arg(0))
      @IdempotentBy(arg(0))
      async impatient(_key: string): Promise<number> {
        await new Promise(setImmediate);
        return ++this.runs;
      }

      @RateLimit(arg(0), { max: 2, per: '1m' })
      @IdempotentBy(arg(0))
      async limited(_key: string): Promise<number> {
        return ++this.runs;
      }
    }
    const { get } = await boot({ providers: [Service] });
    const service = get(Service);
    const first = service.impatient('k');
    await expect(service.impatient('k')).rejects.toMatchObject({ code: 'busy' });
    expect([await first, await service.impatient('k')]).toEqual([1, 1]);
    expect([await service.limited('k'), await service.limited('k')]).toEqual([2, 2]);
    await expect(service.limited('k')).rejects.toMatchObject({ code: 'rate_limited' });
  });

  it('of what an instance keeps, and where it may stand?', async () => {
    class User {
      readonly #secret = 'lost';

      constructor(readonly name: string) {}

      greeting(): string {
        return `I am ${this.name}`;
      }

      secret(): string {
        return this.#secret;
      }
    }
    @Injectable()
    class Service {
      @IdempotentBy(arg(0), { returns: User })
      async alone(_key: string): Promise<User> {
        return new User('Ada');
      }

      @IdempotentBy(arg(0), { returns: User })
      async inside(_key: string): Promise<{ user: User }> {
        return { user: new User('Ada') };
      }
    }
    const { get } = await boot({ providers: [Service] });
    const service = get(Service);
    await service.alone('k');
    const again = await service.alone('k');
    expect(again.greeting()).toBe('I am Ada');
    expect(() => again.secret()).toThrow(TypeError);
    await service.inside('k');
    await expect(service.inside('k')).rejects.toMatchObject({ replayable: false });
  });

  it('of a memory store that is full of outcomes?', async () => {
    @Injectable()
    class Service {
      @IdempotentBy(arg(0))
      async run(key: string): Promise<string> {
        return key;
      }
    }
    const { get, clock } = await boot(
      { providers: [Service] },
      { store: new MemoryStore({ maxKeys: 2 }) },
    );
    const service = get(Service);
    await service.run('a');
    await service.run('b');
    await expect(service.run('c')).rejects.toMatchObject({
      code: 'store_unavailable',
      metadata: { reason: 'full' },
    });
    expect(await service.run('a')).toBe('a');
    await clock.advance('24h');
    expect(await service.run('c')).toBe('c');
  });

  it('of uploaded files, which the request does not tell apart?', async () => {
    @Controller('files')
    class Files {
      @Post()
      @UseInterceptors(FileInterceptor('file'))
      @IdempotentBy(header('Idempotency-Key'), { scope: 'shared' })
      async upload(@UploadedFile() file: { readonly size: number }): Promise<object> {
        return { size: file.size };
      }

      @Post('checked')
      @UseInterceptors(FileInterceptor('file'))
      @IdempotentBy(header('Idempotency-Key'), {
        scope: 'shared',
        fingerprint: (file: { readonly size: number }) => file.size,
      })
      async checked(@UploadedFile() file: { readonly size: number }): Promise<object> {
        return { size: file.size };
      }
    }
    const http = await startHttp('express', { controllers: [Files] });
    const upload = (path: string, text: string) => {
      const body = new FormData();
      body.set('file', new Blob([text]), 'a.txt');
      return http.request(path, { method: 'POST', body, headers: { 'idempotency-key': 'k' } });
    };
    expect((await upload('/files', 'short')).body).toEqual({ size: 5 });
    expect((await upload('/files', 'much longer')).body).toEqual({ size: 5 });
    expect((await upload('/files/checked', 'short')).body).toEqual({ size: 5 });
    expect((await upload('/files/checked', 'much longer')).status).toBe(422);
  });

  it('of a handler that code of your own has called?', async () => {
    @Controller('orders')
    class Orders {
      @Post()
      @IdempotentBy(input('id'))
      async create(@Body('id') id: string): Promise<object> {
        return { id };
      }
    }
    const http = await startHttp('express', { controllers: [Orders] });
    await http.app.get(Orders).create('a');
    expect(await http.post('/orders', { id: 'a' })).toMatchObject({ status: 409 });
    expect(await http.post('/orders', { id: 'b' })).toMatchObject({ status: 201 });
    expect(await http.app.get(Orders).create('b')).toEqual({ id: 'b' });
  });

  it('of a key that is composed by hand, and of one that is too long for that?', async () => {
    @Injectable()
    class Service {
      @IdempotentBy(arg(0), { scope: { call: () => 'a:b' } })
      async run(key: string): Promise<string> {
        return key;
      }
    }
    const { get, telemetry } = await boot({ providers: [Service] });
    const inspect = (segmentText: string) =>
      get(IdempotencyRecords).inspect(StoreKey.compose('cmdx:idem', 'Service.run', segmentText));
    await get(Service).run('50%: c');
    expect(await inspect('a%3Ab:50%25%3A c')).toMatchObject({ state: 'done' });
    await get(Service).run('k'.repeat(300));
    const told = telemetry.of('idempotency_claimed')[1]?.payload.idempotencyKey ?? '';
    expect(told).toMatch(/^cmdx:idem:Service\.run:sha256-/);
    expect(await get(IdempotencyRecords).inspect(told)).toMatchObject({ state: 'done' });
  });

  it('of a mixin, whose class has another name in each process?', async () => {
    const ordersOf = (): Type => {
      @Controller('orders')
      class Orders {
        @Post()
        @IdempotentBy(header('idempotency-key'), { scope: 'shared', name: 'orders' })
        async create(@Body('id') id: string): Promise<object> {
          return { id };
        }
      }
      return mixin(Orders);
    };
    const store = new MemoryStore();
    const [one, other] = [ordersOf(), ordersOf()];
    expect(one.name).not.toBe(other.name);
    for (const [target, replayed] of [
      [one, null],
      [other, 'true'],
    ] as const) {
      const http = await startHttp('express', { controllers: [target], cmdx: { store } });
      const answer = await http.post('/orders', { id: 'a' }, { 'idempotency-key': 'k' });
      expect(answer).toMatchObject({ status: 201, body: { id: 'a' } });
      expect(answer.headers.get('idempotent-replayed')).toBe(replayed);
    }
  });

  it('of keys that demand a scope, and those that cannot be recognised?', async () => {
    @Controller()
    class ByHeader {
      @Post()
      @IdempotentBy(header('x-key'))
      async run(): Promise<void> {}
    }
    @Controller()
    class ByComposition {
      @Post()
      @IdempotentBy(segment`pay:${header('x-key')}`)
      async run(): Promise<void> {}
    }
    @Controller()
    class ByParameter {
      @Post()
      @IdempotentBy(arg(0))
      async run(@Headers('x-key') _key: string): Promise<void> {}
    }
    for (const routes of [ByHeader, ByComposition, ByParameter]) {
      await expect(startHttp('express', { controllers: [routes] })).rejects.toThrow(
        /expected the option "scope"/,
      );
    }

    @Controller()
    class ByOwnReading {
      runs = 0;

      @Post()
      @IdempotentBy(fromRequest<WithHeaders>((request) => request.headers['x-key']))
      async run(): Promise<number> {
        return ++this.runs;
      }
    }
    const { post } = await startHttp('express', { controllers: [ByOwnReading] });
    await post('/', { user: 'ada' }, { 'x-key': 'k' });
    expect((await post('/', { user: 'bob' }, { 'x-key': 'k' })).text).toBe('1');
  });

  it('of handlers that have no room for a first answer, or for a skip?', async () => {
    @Controller()
    class AnswersItself {
      @Post()
      @IdempotentBy('k')
      async run(@Res() _response: unknown): Promise<void> {}
    }
    @Controller()
    class SkipsRedirect {
      @Post()
      @Redirect('/there')
      @IdempotentBy('k', { onDuplicate: 'skip' })
      async run(): Promise<void> {}
    }
    @Injectable()
    class Streams {
      @IdempotentBy('k')
      run(): Observable<number> {
        return of(1);
      }
    }
    for (const routes of [AnswersItself, SkipsRedirect]) {
      await expect(startHttp('express', { controllers: [routes] })).rejects.toThrow(
        /expected a handler that Nest answers with its value/,
      );
    }
    await expect(boot({ providers: [Streams] })).rejects.toThrow(
      /got one that returns an Observable/,
    );
  });
});
