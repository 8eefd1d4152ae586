import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { Controller, Get, Inject, Injectable, Logger, Module } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  Cmdx,
  CmdxModule,
  type CmdxModuleOptions,
  type CmdxOptionsFactory,
  input,
  LockWith,
  MemoryStore,
  RateLimit,
  Store,
  Telemetry,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootMessage, definitionMessage } from '../../support/definition.js';

closeApplicationsAfterEach();
afterEach(() => void jest.restoreAllMocks());

/** Options as plain JavaScript may write them. */
const wrong = (options: unknown): CmdxModuleOptions => options as CmdxModuleOptions;

@Injectable()
class Accounts {
  @LockWith('a')
  @RateLimit({ max: 5 })
  async reconcile(): Promise<string> {
    return 'done';
  }

  async unguarded(): Promise<string> {
    return 'bare';
  }
}

describe('which options does forRoot() refuse?', () => {
  const option = (name: string): string => `CmdxModule.forRoot() option "${name}": `;
  const cases: readonly (readonly [string, unknown, string])[] = [
    [
      'an unknown one',
      { stroe: 1 },
      'CmdxModule.forRoot(): unknown option "stroe"; expected one of store, ',
    ],
    [
      'a store that is none',
      { store: {} },
      `${option('store')}expected a Store, got an object (Object)`,
    ],
    [
      'what only looks like a store',
      { store: { enter: () => [], leave: () => [] } },
      `${option('store')}expected a Store, got an object (Object)`,
    ],
    ['null for a store', { store: null }, `${option('store')}expected a Store, got null`],
    [
      'a clock that is none',
      { clock: Date },
      `${option('clock')}expected a Clock { now(), sleep() }, got function Date`,
    ],
    [
      'no function',
      { correlationId: 'x' },
      `${option('correlationId')}expected a function, got "x"`,
    ],
    [
      'no list of listeners',
      { telemetry: {} },
      `${option('telemetry')}expected a list of listeners`,
    ],
    ['a list of others', { telemetry: [{}] }, `${option('telemetry')}expected a list of listeners`],
    [
      'no patience',
      { storeTimeout: 0 },
      `${option('storeTimeout')}expected more than zero seconds`,
    ],
    [
      'NaN',
      { storeTimeout: Number.NaN },
      `${option('storeTimeout')}expected more than zero seconds`,
    ],
    [
      'Infinity',
      { shutdownTimeout: Infinity },
      `${option('shutdownTimeout')}expected zero or more`,
    ],
    [
      'a limiter that is none',
      { limiters: { mine: 5 } },
      'CmdxModule.forRoot() option "limiters"("mine"): expected a function, got 5',
    ],
    [
      'defaults of no policy',
      { defaults: { locks: {} } },
      `${option('defaults')}unknown option "locks"; expected one of rateLimit, lock, idempotency`,
    ],
    [
      'defaults that are none',
      { defaults: { lock: 5 } },
      `${option('defaults.lock')}expected options, got 5`,
    ],
    [
      'an unknown default',
      { defaults: { lock: { tll: 1 } } },
      `${option('defaults.lock')}unknown option "tll"`,
    ],
    [
      'a default that is wrong',
      { defaults: { lock: { ttl: -1 } } },
      'CmdxModule.forRoot() option "defaults.lock" option "ttl": expected more than zero seconds',
    ],
    [
      'a default name',
      { defaults: { lock: { name: 'x' } } },
      `${option('defaults.lock')}"name: x" must be written on the method`,
    ],
    [
      'a default skip',
      { defaults: { lock: { onBusy: 'skip' } } },
      `${option('defaults.lock')}"onBusy: skip" must be written on the method`,
    ],
    [
      'a default skip of limits',
      { defaults: { rateLimit: { onLimit: 'skip' } } },
      `${option('defaults.rateLimit')}"onLimit: skip" must be`,
    ],
    ['no options at all', null, 'CmdxModule.forRoot(): expected options, got null'],
    ['a string', 'redis', 'CmdxModule.forRoot(): expected options, got "redis"'],
  ];

  it.each(cases)('%s', async (_what, options, message) => {
    const inTime = definitionMessage(() => CmdxModule.forRoot(wrong(options)));
    expect(inTime).toContain(message);
    // What a factory answers is checked alike, at boot.
    const later = application(CmdxModule.forRootAsync({ useFactory: () => wrong(options) }));
    expect(await bootMessage(later)).toBe(inTime);
  });

  it('a factory that answers nothing', async () => {
    const later = application(CmdxModule.forRootAsync({ useFactory: () => wrong(undefined) }));
    expect(await bootMessage(later)).toBe('CmdxModule.forRoot(): expected options, got undefined');
  });

  it('not a namespace or a gate that happens to be called skip', () => {
    CmdxModule.forRoot({ defaults: { lock: { namespace: 'skip' }, rateLimit: { if: 'skip' } } });
  });
});

describe('what do the defaults fill in?', () => {
  it('options that a decorator leaves out, and only those', async () => {
    const defaults = { rateLimit: { per: 60, max: 9 }, lock: { namespace: 'app:lock' } };
    const { get, telemetry } = await boot({ providers: [Accounts] }, { defaults });
    await get(Accounts).reconcile();
    expect(telemetry.of('rate_limit_admitted')[0]?.payload).toMatchObject({ max: 5, per: 60 });
    expect(telemetry.of('lock_acquired')[0]?.payload.lockKey).toBe('app:lock:Accounts.reconcile:a');
  });

  it('an option that is undefined fills in nothing', async () => {
    const defaults = { lock: { namespace: undefined }, rateLimit: { per: 60, limiter: undefined } };
    const { get, telemetry } = await boot({ providers: [Accounts] }, wrong({ defaults }));
    await get(Accounts).reconcile();
    expect(telemetry.of('rate_limit_admitted')[0]?.payload.limiter).toBe('fixed_window');
    expect(telemetry.of('lock_acquired')[0]?.payload.lockKey).toBe(
      'cmdx:lock:Accounts.reconcile:a',
    );
  });

  it('never a policy', async () => {
    @Injectable()
    class LockOnly {
      @LockWith('a')
      async reconcile(): Promise<void> {}
    }
    const defaults = { rateLimit: { max: 0, per: 60 } };
    const { get, telemetry } = await boot({ providers: [LockOnly, Accounts] }, { defaults });
    await get(LockOnly).reconcile();
    await expect(get(Accounts).unguarded()).resolves.toBe('bare');
    expect(telemetry.names).not.toContain('rate_limit_exceeded');
    expect(telemetry.names).not.toContain('rate_limit_admitted');
  });
});

describe('how often may the module be imported?', () => {
  const twice =
    'CmdxModule.forRoot(): expected to be imported once, got several; it is global, so import it in the root module only';
  const async = (): ReturnType<typeof CmdxModule.forRootAsync> =>
    CmdxModule.forRootAsync({ useFactory: () => ({}) });

  it.each([
    ['twice', () => [CmdxModule.forRoot(), CmdxModule.forRoot()]],
    [
      'twice, with different options',
      () => [CmdxModule.forRoot(), CmdxModule.forRoot({ storeTimeout: 2 })],
    ],
    ['once now, once later', () => [CmdxModule.forRoot(), async()]],
    ['twice later', () => [async(), async()]],
  ])('not %s in one module', async (_how, imports) => {
    expect(await bootMessage(application(...imports()))).toBe(twice);
  });

  it('not in two modules', async () => {
    @Module({ imports: [CmdxModule.forRoot()] })
    class Mail {}
    expect(await bootMessage(application(CmdxModule.forRoot(), Mail))).toBe(twice);
  });

  it('one import that two modules name is one', async () => {
    const cmdx = CmdxModule.forRoot();
    @Module({ imports: [cmdx] })
    class Mail {}
    await (await application(cmdx, Mail)).close();
  });
});

describe('how are options made later?', () => {
  const store = new MemoryStore();

  @Injectable()
  class Settings implements CmdxOptionsFactory {
    readonly store = store;
    createCmdxOptions(): CmdxModuleOptions {
      return { store: this.store };
    }
  }
  @Module({ providers: [Settings], exports: [Settings] })
  class SettingsModule {}

  it.each([
    [
      'useFactory',
      () =>
        CmdxModule.forRootAsync({
          imports: [SettingsModule],
          inject: [Settings],
          useFactory: async (settings: Settings) => ({ store: settings.store }),
        }),
    ],
    ['useClass', () => CmdxModule.forRootAsync({ useClass: Settings })],
    [
      'useExisting',
      () => CmdxModule.forRootAsync({ imports: [SettingsModule], useExisting: Settings }),
    ],
  ])('%s', async (_form, make) => {
    const app = await application(make());
    expect(app.get(Store, { strict: false })).toBe(store);
    await app.close();
  });
});

describe('can what the options need be guarded itself?', () => {
  @Injectable()
  class Config {
    @LockWith('a')
    async load(): Promise<void> {}
  }
  @Injectable()
  class Connection {
    constructor(readonly config: Config) {}
  }
  @Injectable()
  class ByProperty {
    @Inject(Config) readonly config: Config | undefined;
  }
  @Injectable()
  class Options implements CmdxOptionsFactory {
    constructor(readonly connection: Connection) {}
    createCmdxOptions(): CmdxModuleOptions {
      return {};
    }
  }
  const error = (path: string): string =>
    `CmdxModule.forRootAsync(): expected options (store, telemetry) that depend on no guarded class, got ${path}, whose guarded methods need the module themselves`;
  const useFactory = (): CmdxModuleOptions => ({});

  it.each([
    ['injected', { inject: [Config], useFactory }, 'Config'],
    ['optional', { inject: [{ token: Config, optional: true }], useFactory }, 'Config'],
    ['behind another', { inject: [Connection], useFactory }, 'Connection -> Config'],
    ['behind a property', { inject: [ByProperty], useFactory }, 'ByProperty -> Config'],
    ['of the class', { useClass: Options }, 'Options -> Connection -> Config'],
    ['of an existing one', { useExisting: Options }, 'Options -> Connection -> Config'],
  ])('no: %s', (_what, options, path) => {
    expect(definitionMessage(() => CmdxModule.forRootAsync(options as never))).toBe(error(path));
  });

  const CONNECTION = Symbol('CONNECTION');

  it.each([
    ['a factory', { provide: 'URL', inject: [Config], useFactory }, 'Config'],
    ['an alias', { provide: 'URL', useExisting: Connection }, 'Connection -> Config'],
    ['a class', { provide: 'URL', useClass: Connection }, 'Config'],
    ['a guarded class of its own name', { provide: Config, useClass: Config }, 'Config'],
  ])('no: behind a token that %s of an imported module provides', (_what, provider, path) => {
    @Module({ providers: [provider] })
    class Inner {}
    @Module({ imports: [Inner, undefined as never] })
    class Outer {}
    const dynamic = {
      module: Outer,
      providers: [{ provide: CONNECTION, inject: [provider.provide], useFactory }],
    };
    const make = (): unknown =>
      CmdxModule.forRootAsync({ imports: [dynamic], inject: [CONNECTION], useFactory });
    const way = provider.provide === Config ? 'CONNECTION' : 'CONNECTION -> URL';
    expect(definitionMessage(make)).toBe(error(`${way} -> ${path}`));
  });

  it('a value in place of a guarded class is fine', async () => {
    @Module({ providers: [{ provide: Config, useValue: {} }], exports: [Config] })
    class Values {}
    const app = await application(
      CmdxModule.forRootAsync({ imports: [Values], inject: [Config], useFactory }),
    );
    await app.close();
  });
});

describe('what can be injected?', () => {
  it('Cmdx, Store and Telemetry, by the type of a constructor parameter', async () => {
    @Injectable()
    class Handles {
      constructor(
        readonly cmdx: Cmdx,
        readonly store: Store,
        readonly telemetry: Telemetry,
      ) {}
    }
    const { get, store } = await boot({ providers: [Handles] });
    const handles = get(Handles);
    expect(handles.cmdx).toBeInstanceOf(Cmdx);
    expect(handles.store).toBe(store);
    expect(handles.telemetry).toBeInstanceOf(Telemetry);
  });

  it('without the module, Nest’s own error names the cure', async () => {
    const unguarded = Test.createTestingModule({ providers: [Accounts] }).compile();
    await expect(unguarded).rejects.toThrow('CmdxModule.forRoot()');
  });
});

describe('what is the author warned of?', () => {
  const warned = () => {
    const spy = jest.spyOn(Logger.prototype, 'warn').mockReturnValue(undefined);
    return () => spy.mock.calls.map(([message]) => String(message));
  };

  it('seconds that look like milliseconds, once each', async () => {
    const warnings = warned();

    @Injectable()
    class Slow {
      @LockWith('a', { ttl: 60_000, wait: 5_000 })
      @RateLimit({ max: 1, per: 1_000 })
      async one(): Promise<void> {}

      @LockWith('a', { ttl: '60000ms', wait: 1_500 })
      @RateLimit({ max: 1_000, per: 86_401 })
      async fine(): Promise<void> {}
    }
    const defaults = { lock: { ttl: 30_000 } };
    const { get } = await boot({ providers: [Slow] }, { defaults, storeTimeout: 1_000 });
    await get(Slow).one();
    expect(warnings().toSorted()).toEqual([
      `CmdxModule.forRoot() option "defaults.lock" option "ttl": 30000 seconds; did you mean '30s'?`,
      `CmdxModule.forRoot() option "storeTimeout": 1000 seconds; did you mean '1s'?`,
      `Slow.one: @LockWith option "ttl": 60000 seconds; did you mean '60s'?`,
      `Slow.one: @LockWith option "wait": 5000 seconds; did you mean '5s'?`,
      `Slow.one: @RateLimit option "per": 1000 seconds; did you mean '1s'?`,
    ]);
  });

  it('a decorator on a class once, however many methods it guards', async () => {
    const warnings = warned();

    @Controller()
    @LockWith({ ttl: 60_000 })
    class Slow {
      @Get('one')
      one(): string {
        return 'one';
      }

      @Get('two')
      two(): string {
        return 'two';
      }
    }
    await boot({ controllers: [Slow] });
    expect(warnings()).toEqual([expect.stringContaining(`did you mean '60s'?`)]);
  });

  it('a property that is absent, the first time only', async () => {
    const warnings = warned();

    @Injectable()
    class Mail {
      @LockWith(input('email'))
      async send(_message: { readonly email?: string; readonly mail?: string }): Promise<void> {}
    }
    const { get, telemetry } = await boot({ providers: [Mail] });
    await get(Mail).send({ email: '' });
    expect(warnings()).toEqual([]);
    for (let call = 0; call < 3; call++) await get(Mail).send({ mail: 'typo' });
    expect(warnings()).toEqual([
      expect.stringMatching(/^Mail\.send: input\('email'\) found no such property/),
    ]);
    expect(telemetry.of('policy_bypassed')).toHaveLength(4);
  });

  it('memory in production', async () => {
    const warnings = warned();
    const before = process.env['NODE_ENV'];
    try {
      process.env['NODE_ENV'] = 'production';
      await boot({});
    } finally {
      process.env['NODE_ENV'] = before;
    }
    expect(warnings()).toEqual([expect.stringContaining('coordinates this process only')]);
    await boot({});
    expect(warnings()).toHaveLength(1);
  });
});

/** An application of these imports. @throws whatever is said at boot */
async function application(
  ...imports: NonNullable<Parameters<typeof Test.createTestingModule>[0]['imports']>
): Promise<TestingModule> {
  const app = await Test.createTestingModule({ imports }).compile();
  return app.init();
}
