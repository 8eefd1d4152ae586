import { describe, expect, it } from '@jest/globals';
import {
  Controller,
  Get,
  HttpException,
  Injectable,
  type PipeTransform,
  Query,
  UseInterceptors,
} from '@nestjs/common';
import {
  arg,
  CircuitBreaker,
  type CircuitBreakerOptions,
  CircuitBreakers,
  InputSchema,
  OutputSchema,
  RateLimit,
  RetryOn,
  type RetryOptions,
  SystemClock,
} from 'nestjs-cmdx';
import { concat, map, NEVER, type Observable, of, throwError } from 'rxjs';
import * as z from 'zod';
import { boot, closeApplicationsAfterEach } from '../support/application.js';
import { closeAppsAfterEach, startHttp } from '../support/http-app.js';

closeApplicationsAfterEach();
closeAppsAfterEach();

const KEY = 'cmdx:cb:api';

/** One call that fails so is enough to open it. */
async function afterOne(error: unknown, options: CircuitBreakerOptions = {}) {
  @Injectable()
  class Service {
    @CircuitBreaker('api', { minimumCalls: 1, ...options })
    async call(): Promise<never> {
      throw error;
    }
  }
  const { get } = await boot({ providers: [Service] });
  await expect(get(Service).call()).rejects.toBe(error);
  return (await get(CircuitBreakers).inspect(KEY))?.state ?? 'closed, nothing counted';
}

class HttpClientError extends Error {
  constructor(readonly status: number) {
    super(`status ${status}`);
  }
}

describe('is what README.md says of @CircuitBreaker really so', () => {
  const uncounted = 'closed, nothing counted';

  it('of timeouts and aborts?', async () => {
    const timeout: unknown = await new Promise((resolve) => {
      const signal = AbortSignal.timeout(1);
      signal.addEventListener('abort', () => resolve(signal.reason));
    });
    expect((timeout as Error).name).toBe('TimeoutError');
    expect(await afterOne(timeout)).toBe('open');
    expect(await afterOne(AbortSignal.abort().reason)).toBe(uncounted);
  });

  it('of the 4xx of Nest, and those of others?', async () => {
    expect(await afterOne(new HttpException('no', 404))).toBe(uncounted);
    expect(await afterOne(new HttpException('no', 503))).toBe('open');
    const foreign = new HttpClientError(404);
    expect(await afterOne(foreign)).toBe('open');
    const ignore = (error: unknown) => error instanceof HttpClientError && error.status < 500;
    expect(await afterOne(foreign, { ignore })).toBe(uncounted);
  });

  it('of failOn, which goes before ignore and before the table?', async () => {
    const [full, other] = [new HttpException('slow down', 429), new TypeError()];
    const failOn = (error: unknown) => (error as { status?: unknown }).status === 429;
    expect(await afterOne(full, { failOn })).toBe('open');
    expect(await afterOne(full, { failOn, ignore: HttpException })).toBe('open');
    expect(await afterOne(other, { ignore: [HttpClientError, TypeError] })).toBe(uncounted);
  });

  it('of the three kinds of keys?', async () => {
    @Injectable()
    class Hosts {
      @CircuitBreaker(arg(0), { minimumCalls: 1 })
      async ask(_host: string): Promise<never> {
        throw new Error('sick');
      }

      @CircuitBreaker({ minimumCalls: 1 })
      async own(): Promise<never> {
        throw new Error('sick');
      }
    }
    const { get, telemetry } = await boot({ providers: [Hosts] });
    await expect(get(Hosts).ask('a.example')).rejects.toThrow('sick');
    await expect(get(Hosts).ask('a.example')).rejects.toMatchObject({ code: 'circuit_open' });
    await expect(get(Hosts).ask('b.example')).rejects.toThrow('sick');
    await expect(get(Hosts).own()).rejects.toThrow('sick');
    expect(telemetry.of('circuit_opened').map(({ payload }) => payload.circuitKey)).toEqual([
      'cmdx:cb:Hosts.ask:a.example',
      'cmdx:cb:Hosts.ask:b.example',
      'cmdx:cb:Hosts.own',
    ]);
  });

  it('of a call that hangs, which it does not hear of?', async () => {
    const hanging: (() => void)[] = [];
    @Injectable()
    class Service {
      @CircuitBreaker('api', { minimumCalls: 1 })
      call(): Promise<void> {
        return new Promise((_, reject) => hanging.push(() => reject(new Error('at last'))));
      }
    }
    const { get, clock } = await boot({ providers: [Service] });
    const calls = [1, 2, 3].map(() => get(Service).call());
    await clock.advance('1h');
    expect(await get(CircuitBreakers).inspect(KEY)).toBeUndefined();
    hanging.forEach((end) => end());
    await Promise.allSettled(calls);
    expect(await get(CircuitBreakers).inspect(KEY)).toMatchObject({ state: 'open' });
  });

  it('of a probe whose body is repeated?', async () => {
    let requests = 0;
    @Injectable()
    class Service {
      @CircuitBreaker('api', { minimumCalls: 1, openFor: '10s' })
      @RetryOn(Error, { limit: 3, delay: '1ms' })
      async call(): Promise<never> {
        requests += 1;
        throw new Error('sick');
      }
    }
    const { get, clock } = await boot({ providers: [Service] });
    for (let probes = 0; probes < 2; probes++) {
      requests = 0;
      const call = expect(get(Service).call()).rejects.toThrow('sick');
      await clock.advance('1s');
      await call;
      expect(requests).toBe(4);
      await clock.advance('10s');
    }
  });

  it('of a nested call on the same breaker?', async () => {
    @Injectable()
    class Service {
      sick = true;

      @CircuitBreaker('api', { minimumCalls: 1, openFor: '10s' })
      async outer(): Promise<string> {
        return this.inner();
      }

      @CircuitBreaker('api', { minimumCalls: 1, openFor: '10s' })
      async inner(): Promise<string> {
        if (this.sick) throw new Error('sick');
        return 'well';
      }
    }
    const { get, clock, telemetry } = await boot({ providers: [Service] });
    const service = get(Service);
    await expect(service.outer()).rejects.toThrow('sick');
    service.sick = false;
    await clock.advance('10s');
    expect(await service.outer()).toBe('well');
    expect(telemetry.names.filter((name) => name.startsWith('circuit'))).toEqual([
      'circuit_opened',
      'circuit_half_opened',
      'circuit_closed',
    ]);
  });

  it('of one that was forced: no event, and no Retry-After?', async () => {
    @Controller()
    class Routes {
      @Get()
      @CircuitBreaker('api')
      async read(): Promise<string> {
        return 'read';
      }
    }
    const http = await startHttp('express', { controllers: [Routes] });
    await http.app.get(CircuitBreakers).forceOpen(KEY);
    expect(http.telemetry.names).toEqual([]);
    const refused = await http.get('/');
    expect(refused).toMatchObject({ status: 503, body: { code: 'circuit_open' } });
    expect(refused.headers.get('retry-after')).toBeNull();
    expect(refused.body).not.toHaveProperty('retryAfter');
  });

  it('of streams: those that complete, fail, and are left?', async () => {
    @Injectable()
    class Feed {
      @CircuitBreaker('api', { stream: true })
      read(kind: string): Observable<unknown> {
        const rest = { completes: of(2), fails: throwError(() => new Error('sick')) };
        return concat(of(1), rest[kind as 'completes'] ?? NEVER);
      }
    }
    const { get } = await boot({ providers: [Feed] });
    const counted = async (kind: string) => {
      await new Promise<void>((resolve) => {
        const subscription = get(Feed)
          .read(kind)
          .subscribe({ error: () => resolve(), complete: resolve });
        if (kind === 'left') setImmediate(() => resolve(subscription.unsubscribe()));
      });
      const report = await get(CircuitBreakers).inspect(KEY);
      return [report?.calls ?? 0, report?.failures ?? 0];
    };
    expect(await counted('left')).toEqual([0, 0]);
    expect(await counted('fails')).toEqual([1, 1]);
  });
});

describe('is what README.md says of @RetryOn really so', () => {
  /** @returns the sleeps before the repetitions, and what the caller got */
  async function sleepsAfter(failure: unknown, options: RetryOptions = {}) {
    @Injectable()
    class Service {
      @RetryOn(() => true, { limit: 1, ...options })
      async call(): Promise<never> {
        throw failure;
      }
    }
    const { get, clock, telemetry } = await boot({ providers: [Service] });
    const call = Promise.allSettled([get(Service).call()]);
    await clock.advance('48h');
    const delays = telemetry.of('task_retried').map(({ payload }) => payload.delay);
    const [end] = await call;
    return { delays, thrown: end.status === 'rejected' ? (end.reason as unknown) : undefined };
  }

  it('of where a server may say when to come back?', async () => {
    const headers = { 'retry-after': '7' };
    for (const error of [
      { retryAfter: 7 },
      { headers },
      { response: { headers } },
      { response: { headers: new Headers(headers) } },
      { response: new Response('', { headers }) },
    ]) {
      expect((await sleepsAfter(error)).delays).toEqual([7]);
    }
  });

  it('of how long a server may keep it waiting, with and without a maxDelay?', async () => {
    const delays = async (retryAfter: number, options: RetryOptions = {}) =>
      (await sleepsAfter({ retryAfter }, options)).delays;
    expect(await delays(60)).toEqual([60]);
    expect(await delays(61)).toEqual([]);
    expect(await delays(86_400, { maxDelay: '1d' })).toEqual([86_400]);
    expect(await delays(11, { maxDelay: '10s' })).toEqual([]);
  });

  it('of a jitter that answers nonsense?', async () => {
    const error = new Error('flaky');
    for (const nonsense of [Number.NaN, -1, 'soon']) {
      const { thrown } = await sleepsAfter(error, { jitter: () => nonsense as number });
      expect(thrown).toBeInstanceOf(RangeError);
      expect((thrown as RangeError).cause).toBe(error);
    }
  });

  it('of an error that nobody has listed, and of layers that repeat each other?', async () => {
    class Flaky extends Error {}
    let requests = 0;
    @Injectable()
    class Inner {
      @RetryOn(Flaky, { delay: 0 })
      async call(error: Error = new Flaky()): Promise<never> {
        requests += 1;
        throw error;
      }
    }
    @Injectable()
    class Middle {
      constructor(readonly inner: Inner) {}

      @RetryOn(Flaky, { delay: 0 })
      async call(): Promise<never> {
        return this.inner.call();
      }
    }
    @Injectable()
    class Outer {
      constructor(readonly middle: Middle) {}

      @RetryOn(Flaky, { delay: 0 })
      async call(): Promise<never> {
        return this.middle.call();
      }
    }
    const { get } = await boot({ providers: [Inner, Middle, Outer] }, { clock: new SystemClock() });
    await expect(get(Inner).call(new TypeError())).rejects.toThrow(TypeError);
    expect(requests).toBe(1);
    requests = 0;
    await expect(get(Outer).call()).rejects.toThrow(Flaky);
    expect(requests).toBe(64);
  });
});

describe('is what README.md says of @InputSchema and @OutputSchema really so', () => {
  it('of positions, gaps and what stands behind the list?', async () => {
    @Injectable()
    class Service {
      seen: readonly unknown[] = [];

      @InputSchema([z.object({ id: z.string() }), undefined, z.int()])
      async run(...args: readonly [{ id: string }, unknown, number, unknown?]): Promise<void> {
        this.seen = args;
      }
    }
    const { get, cmdx } = await boot({ providers: [Service] });
    const service = get(Service);
    await service.run({ id: 'a', more: 1 } as { id: string }, 'as it is', 3, 'too');
    expect(service.seen).toEqual([{ id: 'a' }, 'as it is', 3, 'too']);
    const { metadata } = await cmdx.execute(() => service.run({ id: 1 } as never, 'x', 1.5));
    expect(metadata.code === 'input_invalid' && metadata.issues.map(({ path }) => path)).toEqual([
      '0.id',
      '2',
    ]);
  });

  it('of an asynchronous schema, and of what an invalid input costs?', async () => {
    const free = z.string().refine(async (name) => name !== 'taken', 'is taken');
    @Injectable()
    class Service {
      @InputSchema(free)
      @RateLimit({ max: 1, per: '1m' })
      @CircuitBreaker('api')
      async run(name: string): Promise<string> {
        return name;
      }
    }
    const { get, telemetry } = await boot({ providers: [Service] });
    for (let i = 0; i < 3; i++) {
      await expect(get(Service).run('taken')).rejects.toMatchObject({ code: 'input_invalid' });
    }
    expect(new Set(telemetry.names)).toEqual(new Set(['task_started', 'task_executed']));
    expect(await get(Service).run('ours')).toBe('ours');
  });

  it('of a handler: pipes before the input, interceptors after the output?', async () => {
    const order: string[] = [];
    const seen = <T>(what: string, value: T): T => {
      order.push(`${what} ${String(value)}`);
      return value;
    };
    const pipe: PipeTransform = { transform: (value: string) => seen('pipe', `${value}!`) };
    @Controller()
    class Routes {
      @Get()
      @UseInterceptors({
        intercept: (_, next) => next.handle().pipe(map((value) => seen('interceptor', value))),
      })
      @InputSchema(z.string().transform((value) => seen('input', `${value}?`)))
      @OutputSchema(z.string().transform((value) => seen('output', `${value}.`)))
      async read(@Query('q', pipe) q: string): Promise<string> {
        return seen('body', q);
      }
    }
    const http = await startHttp('express', { controllers: [Routes] });
    expect((await http.get('/?q=a')).text).toBe('a!?.');
    expect(order).toEqual(['pipe a!', 'input a!?', 'body a!?', 'output a!?.', 'interceptor a!?.']);
  });

  it('of what a client sees of an output that does not fit?', async () => {
    @Controller()
    class Routes {
      @Get()
      @OutputSchema(z.object({ secret: z.string() }))
      async read(): Promise<{ secret: string }> {
        return { secret: 42 as never };
      }
    }
    const http = await startHttp('express', { controllers: [Routes] });
    expect(await http.get('/')).toMatchObject({
      status: 500,
      body: {
        statusCode: 500,
        error: 'Internal Server Error',
        message: 'Internal server error',
        code: 'output_invalid',
      },
    });
    const [executed] = http.telemetry.of('task_executed');
    expect(executed?.payload.result).toMatchObject({
      metadata: { issues: [{ path: 'secret' }] },
    });
  });
});
