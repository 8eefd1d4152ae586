import { runInNewContext } from 'node:vm';
import { describe, expect, it } from '@jest/globals';
import { Injectable, Logger } from '@nestjs/common';
import { arg, type CmdxModuleOptions, LockWith, segment, Telemetry } from 'nestjs-cmdx';
import { firstValueFrom, Observable, throwError } from 'rxjs';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { settledWithin } from '../../support/time.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
refuseUnhandledRejections();

function revokedProxy(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

/** Values that somebody may throw and that throw themselves when they are looked at. */
const HOSTILE: Readonly<Record<string, () => unknown>> = {
  'a revoked proxy': revokedProxy,
  'a proxy that answers nothing': () =>
    new Proxy(
      {},
      {
        get() {
          throw new Error('no');
        },
      },
    ),
  'an error whose message throws': () =>
    Object.defineProperty(new Error(), 'message', {
      get() {
        throw new Error('no message');
      },
    }),
  'an object without a text': () => Object.create(null) as unknown,
  null: () => null,
  'a frozen error': () => Object.freeze(new Error('frozen')),
};

@Injectable()
class Thrower {
  @LockWith(arg(0))
  async promise(_key: string, thrown: unknown): Promise<string> {
    if (thrown !== undefined) throw thrown;
    return 'ran';
  }

  @LockWith(arg(0))
  stream(_key: string, thrown: unknown): Observable<string> {
    return throwError(() => thrown);
  }
}

/** What a promise was rejected with, without looking at it. */
async function rejection(promise: Promise<unknown>): Promise<{ readonly thrown: unknown }> {
  return promise.then(
    () => Promise.reject(new Error('it was not rejected')),
    (thrown: unknown) => ({ thrown }),
  );
}

describe('A body throws something that cannot be looked at: what becomes of the call?', () => {
  for (const [name, make] of Object.entries(HOSTILE)) {
    it(`${name}: the caller gets it, the lease is back, and closing waits for nobody`, async () => {
      const { get, store, close } = await boot(
        { providers: [Thrower] },
        { shutdownTimeout: '10s' },
      );
      const thrown = make();
      const promised = await rejection(get(Thrower).promise('42', thrown));
      const streamed = await rejection(firstValueFrom(get(Thrower).stream('42', thrown)));
      expect(Object.is(promised.thrown, thrown)).toBe(true);
      expect(Object.is(streamed.thrown, thrown)).toBe(true);
      expect(await store.get('cmdx:lock:Thrower.promise:42')).toBeUndefined();
      expect(await store.get('cmdx:lock:Thrower.stream:42')).toBeUndefined();
      await settledWithin(5_000, close());
    });

    it(`${name}, thrown by subscribers at once and later: the call does not notice`, async () => {
      const { get, module } = await boot({ providers: [Thrower] });
      module.useLogger(false);
      const telemetry = module.get(Telemetry);
      for (const event of ['task_started', 'lock_acquired', 'task_executed'] as const) {
        telemetry.subscribe(event, () => {
          throw make();
        });
        telemetry.subscribe(event, async () => {
          throw make();
        });
      }
      expect(await get(Thrower).promise('42', undefined)).toBe('ran');
      Logger.overrideLogger(['error', 'warn']);
    });
  }
});

describe('correlationId answers what it should not: what becomes of the call?', () => {
  const answers: Readonly<Record<string, () => unknown>> = {
    'a promise that is rejected': () => Promise.reject(new Error('no id')),
    'an object': () => ({ id: 1 }),
    'a number': () => 7,
    null: () => null,
    'a throw without a text': () => {
      throw Object.create(null);
    },
  };
  for (const [name, answer] of Object.entries(answers)) {
    it(`${name}: nothing, there is no xid`, async () => {
      const correlationId = answer as NonNullable<CmdxModuleOptions['correlationId']>;
      const { get, telemetry } = await boot({ providers: [Thrower] }, { correlationId });
      expect(await get(Thrower).promise('42', undefined)).toBe('ran');
      expect(telemetry.of('task_started')).toMatchObject([{ xid: undefined }]);
    });
  }
});

describe('A part of a composed key is a promise of another realm: is it awaited?', () => {
  /** Of another realm, as libraries and sandboxes hand them out: no instance of our own. */
  const ForeignPromise = runInNewContext('Promise') as PromiseConstructor;
  const later = { call: () => ForeignPromise.resolve('later') };

  @Injectable()
  class Composed {
    @LockWith(segment`${arg(0)}:${later}`)
    async run(_id: string): Promise<void> {}
  }

  it('yes, as a whole key is', async () => {
    const { get, telemetry } = await boot({ providers: [Composed] });
    await get(Composed).run('42');
    expect(telemetry.of('lock_acquired').map(({ payload }) => payload.lockKey)).toEqual([
      'cmdx:lock:Composed.run:42:later',
    ]);
  });
});
