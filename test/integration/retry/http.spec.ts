import { describe, expect, it } from '@jest/globals';
import {
  type CallHandler,
  Controller,
  type ExecutionContext,
  Get,
  Injectable,
  type NestInterceptor,
  Param,
  ParseIntPipe,
  type PipeTransform,
  Post,
  ServiceUnavailableException,
  UseInterceptors,
} from '@nestjs/common';
import type { Observable } from 'rxjs';
import { IdempotentBy, input, InputSchema, RetryOn, SystemClock } from 'nestjs-cmdx';
import * as z from 'zod';
import { ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';

closeAppsAfterEach();

class Flaky extends Error {}

let intercepted = 0;
let piped = 0;

@Injectable()
class Counting implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    intercepted += 1;
    return next.handle();
  }
}

class CountingPipe implements PipeTransform {
  transform(value: unknown): unknown {
    piped += 1;
    return value;
  }
}

@Controller('orders')
@UseInterceptors(Counting)
class Orders {
  runs = 0;

  @Get('flaky/:failures')
  @RetryOn(Flaky, { delay: 0 })
  async flaky(@Param('failures', ParseIntPipe, CountingPipe) failures: number): Promise<object> {
    this.runs += 1;
    if (this.runs <= failures) throw new Flaky('not yet');
    return { runs: this.runs };
  }

  @Get('unavailable')
  @RetryOn(ServiceUnavailableException, { delay: 0, limit: 1 })
  async unavailable(): Promise<never> {
    this.runs += 1;
    throw new ServiceUnavailableException(`attempt ${this.runs}`);
  }

  @Post('once/:id')
  @IdempotentBy(input('id'))
  @RetryOn(Flaky, { delay: 0 })
  async once(@Param('id') id: string): Promise<object> {
    this.runs += 1;
    if (this.runs < 3) throw new Flaky();
    return { id, runs: this.runs };
  }

  @Get('checked/:id')
  @InputSchema(z.coerce.number().int())
  @RetryOn(Error, { delay: 0 })
  async checked(@Param('id') id: number): Promise<object> {
    this.runs += 1;
    return { id };
  }
}

@Controller('class')
@RetryOn(Flaky, { delay: 0 })
class Sync {
  runs = 0;

  @Get()
  get(): object {
    this.runs += 1;
    if (this.runs < 3) throw new Flaky();
    return { runs: this.runs };
  }
}

describe.each(ADAPTERS)('is the body of a handler repeated inside one request (%s)?', (adapter) => {
  const start = () => {
    intercepted = 0;
    piped = 0;
    return startHttp(adapter, {
      controllers: [Orders, Sync],
      cmdx: { clock: new SystemClock() },
    });
  };

  it('yes, and only the body: pipes and interceptors run once', async () => {
    const { get, telemetry } = await start();
    const answer = await get('/orders/flaky/3');
    expect(answer).toMatchObject({ status: 200, body: { runs: 4 } });
    expect([intercepted, piped]).toEqual([1, 1]);
    expect(telemetry.names).toEqual([
      'task_started',
      'task_retried',
      'task_retried',
      'task_retried',
      'task_executed',
    ]);
    expect(telemetry.of('task_executed')[0]?.payload.result).toMatchObject({ retries: 3 });
  });

  it('until the limit; the client gets what Nest makes of the last error', async () => {
    const { get, app } = await start();
    expect((await get('/orders/flaky/9')).status).toBe(500);
    expect(app.get(Orders).runs).toBe(4);
    expect(await get('/orders/unavailable')).toMatchObject({
      status: 503,
      body: { message: 'attempt 6' },
    });
  });

  it('under one claim; the second request is answered without the body', async () => {
    const { post, app } = await start();
    const body = { id: 'o-1', runs: 3 };
    expect(await post('/orders/once/o-1')).toMatchObject({ status: 201, body });
    const again = await post('/orders/once/o-1');
    expect(again).toMatchObject({ status: 201, body });
    expect(again.headers.get('Idempotent-Replayed')).toBe('true');
    expect(app.get(Orders).runs).toBe(3);
  });

  it('never for an input that does not fit', async () => {
    const { get, app, telemetry } = await start();
    expect((await get('/orders/checked/x')).status).toBe(400);
    expect(app.get(Orders).runs).toBe(0);
    expect(telemetry.names).toEqual(['task_started', 'task_executed']);
  });

  it('of a sync handler, too, whose class says so', async () => {
    const { get } = await start();
    expect(await get('/class')).toMatchObject({ status: 200, body: { runs: 3 } });
  });
});
