import { inspect } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import { type Abstract, Injectable, Module, type Provider, Scope, type Type } from '@nestjs/common';
import { ContextIdFactory, LazyModuleLoader, ModuleRef } from '@nestjs/core';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  arg,
  CmdxModule,
  currentInvocation,
  DefinitionError,
  type Invocation,
  LockWith,
  MemoryStore,
  NotManagedError,
  Store,
  withoutPolicies,
} from 'nestjs-cmdx';
import { firstValueFrom, Observable, of } from 'rxjs';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

/** What a test calls, however the instance was made. */
interface Reconciler {
  reconcile(accountId: string): Promise<string>;
}

@Injectable()
class Accounts implements Reconciler {
  constructor(readonly door: Door) {}

  @LockWith(arg(0))
  async reconcile(accountId: string): Promise<string> {
    await this.door.pass();
    return `reconciled ${accountId}`;
  }
}

@Injectable({ scope: Scope.REQUEST })
class AccountsPerRequest extends Accounts {}

@Injectable({ scope: Scope.TRANSIENT })
class TransientAccounts extends Accounts {}

abstract class AccountsToken implements Reconciler {
  abstract reconcile(accountId: string): Promise<string>;
}

@Injectable()
class InheritedAccounts extends Accounts {}

@Injectable()
class BareOverride extends Accounts {
  override async reconcile(accountId: string): Promise<string> {
    await this.door.pass();
    return `reconciled ${accountId}`;
  }
}

@Injectable()
class OverrideWithSuper extends Accounts {
  override async reconcile(accountId: string): Promise<string> {
    return super.reconcile(accountId);
  }
}

@Injectable()
class DecoratedOverride extends Accounts {
  @LockWith()
  override async reconcile(accountId: string): Promise<string> {
    return super.reconcile(accountId);
  }
}

/** The guarded method is reached from an unguarded one of the same instance. */
@Injectable()
class SelfCalling implements Reconciler {
  constructor(readonly door: Door) {}

  async reconcile(accountId: string): Promise<string> {
    return this.guarded(accountId);
  }

  @LockWith(arg(0))
  protected async guarded(accountId: string): Promise<string> {
    await this.door.pass();
    return `reconciled ${accountId}`;
  }
}

@Injectable()
class FrozenAccounts extends Accounts {
  constructor(door: Door) {
    super(door);
    Object.freeze(this);
  }
}

/** Nest gets a Proxy instead of the instance, as tracing libraries make them. */
@Injectable()
class ProxiedAccounts extends Accounts {
  constructor(door: Door) {
    super(door);
    return new Proxy(this, {});
  }
}

@Injectable()
class FrozenProxiedAccounts extends Accounts {
  constructor(door: Door) {
    super(door);
    return new Proxy(Object.freeze(this), {});
  }
}

@Injectable()
class Maker {
  constructor(private readonly moduleRef: ModuleRef) {}

  make(): Promise<Accounts> {
    return this.moduleRef.create(Accounts);
  }
}

interface Making {
  readonly way: string;
  readonly providers: readonly Provider[];
  readonly make: (module: TestingModule) => Promise<Reconciler> | Reconciler;
}

const got =
  (token: Abstract<Reconciler> | Type<Reconciler>) =>
  (module: TestingModule): Reconciler =>
    module.get(token);
const resolved =
  (token: Type<Reconciler>) =>
  (module: TestingModule): Promise<Reconciler> =>
    module.resolve(token, ContextIdFactory.create());

const MAKINGS: readonly Making[] = [
  { way: 'a singleton', providers: [Accounts], make: got(Accounts) },
  {
    way: 'a request-scoped provider, one instance per request',
    providers: [AccountsPerRequest],
    make: resolved(AccountsPerRequest),
  },
  {
    way: 'a transient provider, one instance per resolve',
    providers: [TransientAccounts],
    make: resolved(TransientAccounts),
  },
  {
    way: 'useClass under another token',
    providers: [{ provide: AccountsToken, useClass: Accounts }],
    make: got(AccountsToken),
  },
  {
    way: 'useExisting',
    providers: [Accounts, { provide: AccountsToken, useExisting: Accounts }],
    make: got(AccountsToken),
  },
  {
    way: 'useFactory',
    providers: [
      { provide: AccountsToken, inject: [Door], useFactory: (door: Door) => new Accounts(door) },
    ],
    make: got(AccountsToken),
  },
  {
    way: 'an asynchronous useFactory without dependencies',
    providers: [{ provide: AccountsToken, useFactory: async () => new Accounts(new Door()) }],
    make: got(AccountsToken),
  },
  {
    way: 'moduleRef.create, a new instance each time',
    providers: [Maker],
    make: (module) => module.get(Maker).make(),
  },
  {
    way: 'a method inherited as it is',
    providers: [InheritedAccounts],
    make: got(InheritedAccounts),
  },
  { way: 'a bare override', providers: [BareOverride], make: got(BareOverride) },
  { way: 'an override with super', providers: [OverrideWithSuper], make: got(OverrideWithSuper) },
  {
    way: 'a decorated override with super',
    providers: [DecoratedOverride],
    make: got(DecoratedOverride),
  },
  { way: 'a self-call', providers: [SelfCalling], make: got(SelfCalling) },
  {
    way: 'an instance frozen in its constructor',
    providers: [FrozenAccounts],
    make: got(FrozenAccounts),
  },
  { way: 'an instance behind a Proxy', providers: [ProxiedAccounts], make: got(ProxiedAccounts) },
  {
    way: 'a frozen instance behind a Proxy',
    providers: [FrozenProxiedAccounts],
    make: got(FrozenProxiedAccounts),
  },
  {
    way: 'a Proxy made by a factory',
    providers: [
      {
        provide: AccountsToken,
        inject: [Door],
        useFactory: (door: Door) => new Proxy(new Accounts(door), {}),
      },
    ],
    make: got(AccountsToken),
  },
];

function doorOf(reconciler: Reconciler, shared: Door): Door {
  return (reconciler as Partial<Accounts>).door ?? shared;
}

describe('Is a second call refused while the first one runs?', () => {
  it.each(MAKINGS)('$way', async ({ providers, make }) => {
    const application = await boot({ providers: [Door, ...providers] });
    const first = await make(application.module);
    const second = await make(application.module);
    const door = doorOf(first, application.get(Door));

    const running = first.reconcile('acct_42');
    await expect(second.reconcile('acct_42')).rejects.toMatchObject({ code: 'busy' });
    expect(door.entered).toBe(1);
    door.open();
    await expect(running).resolves.toBe('reconciled acct_42');
    await expect(second.reconcile('acct_42')).resolves.toBe('reconciled acct_42');
    expect(application.telemetry.of('lock_acquired')).toHaveLength(2);
    expect(application.telemetry.of('lock_busy')).toHaveLength(1);
  });

  it('useValue', async () => {
    const door = new Door();
    const value = new Accounts(door);
    const application = await boot({ providers: [{ provide: AccountsToken, useValue: value }] });
    const accounts = application.get(AccountsToken);
    const running = accounts.reconcile('acct_42');
    await expect(accounts.reconcile('acct_42')).rejects.toMatchObject({ code: 'busy' });
    door.open();
    await expect(running).resolves.toBe('reconciled acct_42');
  });

  it('for another key it is not refused', async () => {
    const application = await boot({ providers: [Door, Accounts] });
    const accounts = application.get(Accounts);
    const running = [accounts.reconcile('acct_1'), accounts.reconcile('acct_2')];
    application.get(Door).open();
    await expect(Promise.all(running)).resolves.toEqual(['reconciled acct_1', 'reconciled acct_2']);
  });
});

describe('Do two applications in one process stay apart?', () => {
  it('the same class, booted twice, has two locks and two telemetries', async () => {
    const [one, two] = [
      await boot({ providers: [Door, Accounts] }),
      await boot({ providers: [Door, Accounts] }),
    ];
    const inOne = one.get(Accounts).reconcile('acct_42');
    const inTwo = two.get(Accounts).reconcile('acct_42');
    expect(one.get(Door).inside).toBe(1);
    expect(two.get(Door).inside).toBe(1);
    await expect(two.get(Accounts).reconcile('acct_42')).rejects.toMatchObject({ code: 'busy' });
    expect(one.telemetry.of('lock_busy')).toHaveLength(0);
    expect(two.telemetry.of('lock_busy')).toHaveLength(1);
    one.get(Door).open();
    two.get(Door).open();
    await Promise.all([inOne, inTwo]);
  });

  it('closing one leaves the other at work', async () => {
    const one = await boot({ providers: [Door, Accounts] });
    const two = await boot({ providers: [Door, Accounts] });
    const ofOne = one.get(Accounts);
    await one.close();
    two.get(Door).open();
    await expect(ofOne.reconcile('acct_42')).rejects.toMatchObject({ code: 'shutting_down' });
    await expect(two.get(Accounts).reconcile('acct_42')).resolves.toBe('reconciled acct_42');
  });

  it('a value that outlives one application works in the next', async () => {
    const door = new Door();
    door.open();
    const value = new Accounts(door);
    const providers = [{ provide: AccountsToken, useValue: value }];
    const first = await boot({ providers });
    await first.close();
    const second = await boot({ providers });
    await expect(second.get(AccountsToken).reconcile('acct_42')).resolves.toBe(
      'reconciled acct_42',
    );
    expect(second.telemetry.names).toContain('lock_acquired');
  });

  it('overrideProvider(Store) replaces the store everywhere', async () => {
    const replaced = new MemoryStore();
    const module = await Test.createTestingModule({
      imports: [CmdxModule.forRoot()],
      providers: [Door, Accounts],
    })
      .overrideProvider(Store)
      .useValue(replaced)
      .compile();
    await module.init();
    const running = module.get(Accounts).reconcile('acct_42');
    expect(await replaced.get('cmdx:lock:Accounts.reconcile:acct_42')).toMatch(/^[0-9a-f-]{36}$/);
    module.get(Door).open();
    await running;
    expect(await replaced.get('cmdx:lock:Accounts.reconcile:acct_42')).toBeUndefined();
    await module.close();
  });
});

@Injectable()
class Recursive {
  readonly seen: Invocation[] = [];

  #note(): void {
    const { tid, cid, root, task } = currentInvocation() as Invocation;
    this.seen.push({ tid, cid, root, task } as Invocation);
  }

  @LockWith((depth: number) => `level-${depth}`)
  async countDown(depth: number): Promise<number> {
    this.#note();
    return depth === 0 ? 0 : this.countDown(depth - 1);
  }

  @LockWith('one key', { wait: 60 })
  async again(depth: number): Promise<number> {
    this.#note();
    return depth === 0 ? 0 : this.again(depth - 1);
  }
}

class GuardedBase {
  seen: string[] = [];

  @LockWith(arg(0))
  async run(_key: string): Promise<string> {
    this.seen.push(`base ${currentInvocation()?.tid}`);
    return 'base';
  }
}

@Injectable()
class CallsSuper extends GuardedBase {
  override async run(key: string): Promise<string> {
    this.seen.push(`leaf ${currentInvocation()?.tid}`);
    const first = await super.run(key);
    await Promise.resolve();
    return `${first}+${await super.run(key)}`;
  }

  /** Not inside the envelope of `run`, so `super.run` is a guarded call like any other. */
  async around(key: string): Promise<string> {
    return super.run(key);
  }
}

describe('What is a new invocation?', () => {
  it('recursion: each level has its own tid, all share the chain', async () => {
    const application = await boot({ providers: [Recursive] });
    const recursive = application.get(Recursive);
    await expect(recursive.countDown(3)).resolves.toBe(0);
    const { seen } = recursive;
    expect(seen).toHaveLength(4);
    expect(new Set(seen.map(({ tid }) => tid)).size).toBe(4);
    expect(new Set(seen.map(({ cid }) => cid)).size).toBe(1);
    expect(seen.map(({ root }) => root)).toEqual([true, false, false, false]);
  });

  it('recursion on its own key is refused at once, although it would wait', async () => {
    const application = await boot({ providers: [Recursive] });
    await expect(application.get(Recursive).again(1)).rejects.toMatchObject({ code: 'busy' });
    expect(application.get(Recursive).seen).toHaveLength(1);
    expect(application.clock.now()).toBe(0);
  });

  it('super.method() is not: one lease, one tid, one start', async () => {
    const application = await boot({ providers: [CallsSuper] });
    const calls = application.get(CallsSuper);
    await expect(calls.run('a')).resolves.toBe('base+base');
    const [leaf, ...bases] = calls.seen.map((line) => line.split(' ')[1]);
    expect(bases).toEqual([leaf, leaf]);
    expect(application.telemetry.of('task_started').map(({ task }) => task)).toEqual([
      'CallsSuper.run',
    ]);
    expect(application.telemetry.of('lock_acquired')).toHaveLength(1);
  });

  it('super.method() from another method is', async () => {
    const application = await boot({ providers: [CallsSuper] });
    await application.get(CallsSuper).around('a');
    expect(application.telemetry.of('lock_acquired')).toHaveLength(1);
  });

  it('a call that a finished one left behind is a chain of its own', async () => {
    const application = await boot({ providers: [LeavesBehind] });
    const service = application.get(LeavesBehind);
    await service.start();
    const left = await service.left;
    expect(left).toMatchObject({ root: true });
    expect(left?.cid).not.toBe(service.chain);
  });
});

@Injectable()
class LeavesBehind {
  chain: string | undefined;
  left: Promise<Pick<Invocation, 'root' | 'cid'>> | undefined;

  @LockWith('start')
  async start(): Promise<void> {
    this.chain = currentInvocation()?.cid;
    this.left = new Promise((resolve) => {
      setTimeout(() => resolve(this.later()), 5);
    });
  }

  @LockWith('later')
  async later(): Promise<Pick<Invocation, 'root' | 'cid'>> {
    const { root, cid } = currentInvocation() as Invocation;
    return { root, cid };
  }
}

@Module({ providers: [Door, Accounts], exports: [Accounts, Door] })
class LateModule {}

@Injectable()
class Misconfigured {
  @LockWith(arg(0), { if: 'isOpen' })
  async run(_id: string): Promise<void> {}
}

@Module({ providers: [Misconfigured] })
class LateMisconfiguredModule {}

describe('Are lazily loaded modules guarded?', () => {
  it('a class that appears after the boot is', async () => {
    const application = await boot({ providers: [] });
    const late = await application.module.get(LazyModuleLoader).load(() => LateModule);
    const accounts = late.get(Accounts);
    const running = accounts.reconcile('acct_42');
    await expect(accounts.reconcile('acct_42')).rejects.toMatchObject({ code: 'busy' });
    late.get(Door).open();
    await expect(running).resolves.toBe('reconciled acct_42');
  });

  it('and validated: loading it fails, not the first call', async () => {
    const application = await boot({ providers: [] });
    const loading = application.module.get(LazyModuleLoader).load(() => LateMisconfiguredModule);
    await expect(loading).rejects.toThrow(/Misconfigured\.run.*"isOpen"/);
    await expect(loading).rejects.toThrow(DefinitionError);
  });
});

@Injectable()
class Ticker {
  early: unknown;

  constructor() {
    this.early = this.tick().catch((error: unknown) => error);
  }

  @LockWith('ticks')
  async tick(): Promise<string> {
    return 'tick';
  }

  @LockWith('written')
  written(): Observable<number> {
    return of(1);
  }

  @LockWith('announced', { stream: true })
  announced() {
    return of(1);
  }
}

describe('What does an instance do that Nest did not make?', () => {
  it('rejects with NotManagedError, which names task and cures', async () => {
    const tick = new Ticker().tick();
    await expect(tick).rejects.toThrow(NotManagedError);
    await expect(tick).rejects.toThrow(
      /Ticker\.tick.*useClass.*moduleRef\.create.*withoutPolicies\(instance\).*nestjs-cmdx\/testing\/bypass/s,
    );
  });

  it.each(['written', 'announced'] as const)(
    'a method that returns an Observable (%s) answers one that fails',
    async (method) => {
      const stream = new Ticker()[method]();
      expect(stream).toBeInstanceOf(Observable);
      await expect(firstValueFrom(stream)).rejects.toThrow(NotManagedError);
    },
  );

  it('an unbound method rejects, on an instance that Nest made too', async () => {
    const application = await boot({ providers: [Ticker] });
    const { tick } = application.get(Ticker);
    await expect(tick()).rejects.toThrow(NotManagedError);
    await expect(tick.call({} as Ticker)).rejects.toThrow(NotManagedError);
    await expect(Reflect.apply(tick, 'text', [])).rejects.toThrow(NotManagedError);
  });

  it('a call from the constructor rejects, later ones do not', async () => {
    const application = await boot({ providers: [Ticker] });
    const ticker = application.get(Ticker);
    expect(await ticker.early).toBeInstanceOf(NotManagedError);
    await expect(ticker.tick()).resolves.toBe('tick');
  });

  it('withoutPolicies lets that one instance run bare', async () => {
    const bare = withoutPolicies(new Accounts(new Door()));
    const running = [bare.reconcile('acct_42'), bare.reconcile('acct_42')];
    expect(bare.door.inside).toBe(2);
    bare.door.open();
    await expect(Promise.all(running)).resolves.toHaveLength(2);
    await expect(new Accounts(new Door()).reconcile('acct_42')).rejects.toThrow(NotManagedError);
  });

  it('withoutPolicies works on a frozen instance and on an override with super', async () => {
    const frozen = withoutPolicies(new FrozenAccounts(new Door()));
    frozen.door.open();
    await expect(frozen.reconcile('acct_42')).resolves.toBe('reconciled acct_42');
    const leaf = withoutPolicies(new OverrideWithSuper(new Door()));
    leaf.door.open();
    await expect(leaf.reconcile('acct_42')).resolves.toBe('reconciled acct_42');
  });

  it('without the module the boot fails, and says which import is missing', async () => {
    const compiling = Test.createTestingModule({ providers: [Door, Accounts] }).compile();
    await expect(compiling).rejects.toThrow('CmdxModule.forRoot()');
    await expect(compiling).rejects.toThrow('Accounts');
  });
});

describe('Does anybody see what we put on an instance?', () => {
  it.each([
    ['singleton', (module: TestingModule) => module.get(Accounts)],
    ['factory-made', (module: TestingModule) => module.get<Accounts>('made')],
    ['bare', () => withoutPolicies(new Accounts(new Door()))],
  ])('not on a %s one', async (_, make) => {
    const application = await boot({
      providers: [
        Door,
        Accounts,
        { provide: 'made', inject: [Door], useFactory: (door: Door) => new Accounts(door) },
      ],
    });
    const instance = make(application.module);
    expect(Object.keys(instance)).toEqual(['door']);
    expect(Reflect.ownKeys({ ...instance })).toEqual(['door']);
    expect(Object.keys(JSON.parse(JSON.stringify(instance)))).toEqual(['door']);
    expect(inspect(instance)).not.toMatch(/cmdx|runtime|invoker/i);
    const seen: string[] = [];
    for (const name in instance) seen.push(name);
    expect(seen).toEqual(['door']);
    expect(structuredClone({ ...instance, door: 1 })).toEqual({ door: 1 });
  });
});
