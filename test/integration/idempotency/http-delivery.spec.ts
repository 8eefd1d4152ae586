import { Agent, request as rawRequest } from 'node:http';
import { describe, expect, it } from '@jest/globals';
import {
  Body,
  Controller,
  Get,
  type MessageEvent,
  Next,
  Post,
  Redirect,
  Res,
  Sse,
} from '@nestjs/common';
import { header, IdempotentBy, input, perTask } from 'nestjs-cmdx';
import { type Observable, of } from 'rxjs';
import { bootMessage } from '../../support/definition.js';
import { Door } from '../../support/door.js';
import { ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { byUser, isReplay, keyed } from '../../support/http-idempotency.js';
import { until } from '../../support/time.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeAppsAfterEach();
refuseUnhandledRejections();

@Controller('orders')
class Orders {
  constructor(private readonly door: Door) {}

  @Post('patient')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser, onInProgress: 'wait' })
  async patient(@Body() _body: unknown): Promise<object> {
    await this.door.pass();
    return { order: this.door.entered };
  }

  @Post('impatient')
  @IdempotentBy(header('Idempotency-Key'), { scope: byUser })
  async impatient(@Body() _body: unknown): Promise<object> {
    await this.door.pass();
    return { order: this.door.entered };
  }
}

describe.each(ADAPTERS)('200 deliveries at once (%s)', (adapter) => {
  const start = async () => {
    const door = new Door();
    const http = await startHttp(adapter, {
      controllers: [Orders],
      providers: [{ provide: Door, useValue: door }],
    });
    const sendAll = (path: string) =>
      Array.from({ length: 200 }, () => http.post(`/orders/${path}`, { amount: 5 }, keyed('k')));
    return { http, door, sendAll };
  };

  it('are one run, and 199 times its answer for who waits', async () => {
    const { http, door, sendAll } = await start();
    const sent = sendAll('patient');
    await until(() => http.telemetry.of('task_started').length === 200, 'everybody');
    door.open();
    const answers = await Promise.all(sent);
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`))).toEqual(
      new Set(['201 {"order":1}']),
    );
    expect(answers.filter(isReplay)).toHaveLength(199);
    expect(door.entered).toBe(1);
    expect(http.telemetry.of('store_error')).toEqual([]);
  });

  it('are one run, and 199 refusals for who does not', async () => {
    const { http, door, sendAll } = await start();
    const sent = sendAll('impatient');
    await until(() => http.telemetry.of('task_executed').length === 199, 'everybody else');
    door.open();
    const answers = await Promise.all(sent);
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    const refused = answers.filter(({ status }) => status === 409);
    expect(refused).toHaveLength(199);
    expect(refused.every(({ body }) => (body as { code: string }).code === 'in_progress')).toBe(
      true,
    );
    expect(door.entered).toBe(1);
  });

  it('survive a client that leaves in the middle of the run: its next delivery is answered', async () => {
    const { http, door } = await start();
    const agent = new Agent({ keepAlive: true });
    const leaving = rawRequest(`${http.url}/orders/impatient`, {
      agent,
      method: 'POST',
      headers: { ...keyed('k'), 'content-type': 'application/json' },
    });
    leaving.on('error', () => undefined);
    leaving.end('{"amount":5}');
    await until(() => door.inside === 1, 'the first body');
    const left = new Promise((resolve) => leaving.once('close', resolve));
    leaving.destroy();
    await left;
    agent.destroy();
    const send = () => http.post('/orders/impatient', { amount: 5 }, keyed('k'));
    expect(await send()).toMatchObject({ status: 409, body: { code: 'in_progress' } });
    door.open();
    await until(async () => (await send()).status === 201, 'the end of the run');
    const again = await send();
    expect([again.text, isReplay(again)]).toEqual(['{"order":1}', true]);
    expect(door.entered).toBe(1);
  });
});

interface AnyResponse {
  status(code: number): { send(body: unknown): unknown };
}

describe.each(ADAPTERS)('a handler that answers by itself (%s)', (adapter) => {
  it.each([
    ['@Res()', Res()],
    ['@Next()', Next()],
  ])('with %s cannot give an answer again: the boot says so', async (_name, parameter) => {
    @Controller()
    class Silent {
      @Post()
      @IdempotentBy(perTask)
      async run(@parameter _response: unknown): Promise<void> {}
    }
    const message = await bootMessage(startHttp(adapter, { controllers: [Silent] }));
    expect(message).toContain('Silent.run: @IdempotentBy:');
    expect(message).toContain('passthrough');
  });

  it('nor be skipped while it is in progress', async () => {
    @Controller()
    class Skipping {
      @Post()
      @IdempotentBy(perTask, { onDuplicate: 'fail', onInProgress: 'skip' })
      async run(@Res() _response: unknown): Promise<undefined> {}
    }
    expect(await bootMessage(startHttp(adapter, { controllers: [Skipping] }))).toContain(
      'Skipping.run: @IdempotentBy:',
    );
  });

  it('can refuse duplicates', async () => {
    @Controller()
    class Own {
      runs = 0;

      @Post('own/:id')
      @IdempotentBy(input('id'), { onDuplicate: 'fail' })
      async run(@Body() _body: { id: string }, @Res() response: AnyResponse): Promise<void> {
        this.runs += 1;
        response.status(207).send({ run: this.runs });
      }
    }
    const http = await startHttp(adapter, { controllers: [Own] });
    const send = () => http.post('/own/7', { id: '7' });
    expect(await send()).toMatchObject({ status: 207, body: { run: 1 } });
    expect(await send()).toMatchObject({ status: 409, body: { code: 'duplicate' } });
    expect(http.app.get(Own).runs).toBe(1);
  });
});

describe('what else is told at boot', () => {
  it('a stream of events, whose values are not kept, whatever its written type', async () => {
    @Controller()
    @IdempotentBy(perTask)
    class Written {
      @Sse('feed')
      feed(): Observable<MessageEvent> {
        return of({ data: 'x' });
      }
    }
    @Controller()
    @IdempotentBy(perTask)
    class Inferred {
      @Sse('feed')
      feed() {
        return of({ data: 'x' });
      }
    }
    for (const controller of [Written, Inferred]) {
      const message = await bootMessage(startHttp('express', { controllers: [controller] }));
      expect(message).toContain(`${controller.name}.feed: @IdempotentBy:`);
      expect(message).toContain('Observable');
    }
  });

  it('nothing of one that is left out', async () => {
    @Controller()
    @IdempotentBy(perTask)
    class Mixed {
      @Sse('feed')
      @IdempotentBy(false)
      feed() {
        return of({ data: 'x' });
      }

      @Get('once')
      async once(): Promise<string> {
        return 'once';
      }
    }
    const http = await startHttp('express', { controllers: [Mixed] });
    expect((await http.get('/feed')).text).toContain('data: x');
    expect(isReplay(await http.get('/once'))).toBe(false);
    expect(isReplay(await http.get('/once'))).toBe(true);
  });

  it('a redirect that would be skipped, which has no body to say so', async () => {
    @Controller()
    class Elsewhere {
      @Post()
      @Redirect('/there')
      @IdempotentBy(perTask, { onDuplicate: 'skip' })
      async run(): Promise<undefined> {}
    }
    expect(await bootMessage(startHttp('express', { controllers: [Elsewhere] }))).toContain(
      'got @Redirect()',
    );
  });
});
