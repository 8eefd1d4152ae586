import { fileURLToPath } from 'node:url';
import { describe, expect, it } from '@jest/globals';
import { Controller, Get, Injectable, Param } from '@nestjs/common';
import { arg, currentInvocation, input, LockWith, perTask, ShuttingDownError } from 'nestjs-cmdx';
import { lastValueFrom, NEVER, Observable } from 'rxjs';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { startWorker } from '../../support/processes.js';
import { settledWithin, until } from '../../support/time.js';

closeApplicationsAfterEach();
closeAppsAfterEach();

@Injectable()
class Accounts {
  reason: unknown;

  constructor(readonly door: Door) {}

  @LockWith(arg(0), { name: 'account', wait: 60 })
  async reconcile(id: string): Promise<string> {
    await this.door.pass();
    return `reconciled ${id}, ${await this.nested(id)}`;
  }

  @LockWith(arg(0))
  async nested(_id: string): Promise<string> {
    return 'nested';
  }

  @LockWith(arg(0), { name: 'account', wait: 60 })
  watch(_id: string): Observable<string> {
    return NEVER;
  }

  /** Ends only when it is told to. */
  @LockWith(perTask)
  async endless(): Promise<string> {
    const signal = currentInvocation()?.signal;
    await new Promise<void>((resolve) => {
      signal?.addEventListener('abort', () => {
        this.reason = signal.reason;
        resolve();
      });
    });
    return 'told to stop';
  }

  /** Hears nothing. */
  @LockWith(perTask)
  async deaf(): Promise<void> {
    await this.door.pass();
  }
}

describe('What becomes of running calls when the application closes?', () => {
  it('waiters are rejected by name at once, the running body finishes, and then it has closed', async () => {
    const { get, module, store } = await boot(
      { providers: [Door, Accounts] },
      { shutdownTimeout: '10s' },
    );
    const accounts = get(Accounts);
    const running = accounts.reconcile('42');
    const waiting = Array.from({ length: 50 }, () => accounts.reconcile('42'));
    const watching = lastValueFrom(accounts.watch('42'));
    let closed = false;
    const closing = module.close().then(() => (closed = true));

    for (const result of await Promise.allSettled([...waiting, watching])) {
      expect(result).toMatchObject({
        status: 'rejected',
        reason: { code: 'shutting_down', name: 'ShuttingDownError' },
      });
    }
    expect(closed).toBe(false);
    expect(await store.get('cmdx:lock:account:42')).toBeDefined();
    get(Door).open();
    await expect(running).resolves.toBe('reconciled 42, nested');
    await closing;
    expect(await store.get('cmdx:lock:account:42')).toBeUndefined();
  });

  it('new chains are refused from the moment it closes', async () => {
    const { get, module, telemetry } = await boot(
      { providers: [Door, Accounts] },
      { shutdownTimeout: '10s' },
    );
    const accounts = get(Accounts);
    const running = accounts.deaf();
    const closing = module.close();
    await expect(
      until(
        async () => (await ended(accounts.nested('1'))) instanceof ShuttingDownError,
        'a refusal',
      ),
    ).resolves.toBeUndefined();
    await expect(accounts.nested('1')).rejects.toMatchObject({
      code: 'shutting_down',
      status: 503,
    });
    get(Door).open();
    await running;
    await closing;
    await expect(accounts.nested('1')).rejects.toThrow(ShuttingDownError);
    expect(telemetry.of('task_started').length).toBe(telemetry.of('task_executed').length);
  });

  it('one that outlasts shutdownTimeout has its signal aborted and its lease given back', async () => {
    const { get, module, store, telemetry } = await boot(
      { providers: [Door, Accounts] },
      { shutdownTimeout: '50ms' },
    );
    const accounts = get(Accounts);
    const endless = accounts.endless();
    const deaf = accounts.deaf();
    expect(telemetry.of('lock_acquired')).toHaveLength(2);
    const start = performance.now();
    await settledWithin(2_000, module.close());
    expect(performance.now() - start).toBeGreaterThanOrEqual(49);
    await expect(endless).resolves.toBe('told to stop');
    expect(accounts.reason).toBeInstanceOf(ShuttingDownError);
    expect(await store.get('cmdx:lock:Accounts.endless')).toBeUndefined();
    expect(await store.get('cmdx:lock:Accounts.deaf')).toBeUndefined();
    get(Door).open();
    await expect(deaf).resolves.toBeUndefined();
  });

  it('over HTTP: the running request is answered, those that wait get 503', async () => {
    const door = new Door();
    @Controller('accounts')
    class AccountsController {
      @LockWith(input('id'), { wait: 60 })
      @Get(':id')
      async reconcile(@Param('id') id: string): Promise<{ readonly id: string }> {
        await door.pass();
        return { id };
      }
    }
    const { get, app, telemetry } = await startHttp('express', {
      controllers: [AccountsController],
    });
    const running = get('/accounts/42');
    await until(() => door.inside === 1, 'the first request');
    const waiting = [get('/accounts/42'), get('/accounts/42')];
    await until(() => telemetry.of('task_started').length === 3, 'the waiting requests');
    const closing = app.close();
    for (const answer of await Promise.all(waiting)) {
      expect(answer.status).toBe(503);
      expect(answer.body).toMatchObject({ statusCode: 503, code: 'shutting_down' });
    }
    door.open();
    await expect(running).resolves.toMatchObject({ status: 200, body: { id: '42' } });
    await closing;
  });
});

async function ended(call: Promise<unknown>): Promise<unknown> {
  return call.catch((error: unknown) => error);
}

const WORKER = fileURLToPath(new URL('./memory-worker.ts', import.meta.url));

/** The answer of a process of its own, which must then end by itself. */
async function answerOf<T>(scenario: string): Promise<T> {
  const worker = startWorker(WORKER, [scenario]);
  try {
    const answer = await worker.next<T>();
    await expect(worker.next()).rejects.toThrow('ended with 0');
    return answer;
  } finally {
    await worker.kill();
  }
}

interface Handles {
  readonly before: readonly string[];
  readonly after: readonly string[];
}

describe('What is left behind?', () => {
  it('no handle by an application that closed under load; its process ends by itself', async () => {
    const { before, after, finished } = await answerOf<Handles & { readonly finished: number }>(
      'handlesAfterClose',
    );
    expect(after).toEqual(before);
    expect(finished).toBe(1);
  }, 30_000);

  it('no handle by an application that could not be compiled', async () => {
    const { before, after, failure } = await answerOf<Handles & { readonly failure: string }>(
      'handlesAfterFailure',
    );
    expect(failure).toBe('DefinitionError');
    expect(after).toEqual(before);
  }, 30_000);

  it('no context and no request by 10,000 requests that leave intervals pending', async () => {
    const retained = await answerOf<Readonly<Record<string, number>>>('retainedContexts');
    expect(retained['pending']).toBeGreaterThanOrEqual(30_000);
    // The last ones may still be on somebody's stack or in a slot that has not been overwritten.
    const few = 10;
    expect(retained['guarded']).toBeLessThan(few);
    expect(retained['unguarded']).toBeLessThan(few);
    expect(retained['guardedRequests']).toBeLessThan(few);
    expect(retained['unguardedRequests']).toBeLessThan(few);
    // What the handlers returned, and the errors they threw.
    expect(retained['values']).toBeLessThan(few);
    expect(retained['leaking']).toBe(100);
  }, 60_000);

  it('nothing by a chain of calls in which each starts the next and waits for none', async () => {
    const retained = await answerOf<Readonly<Record<string, number>>>('retainedChain');
    for (const way of ['direct', 'executed', 'scheduled']) {
      expect([way, retained[way]]).toEqual([way, expect.any(Number)]);
      expect(retained[way]).toBeLessThan(100);
    }
  }, 60_000);
});
