import { describe, expect, it } from '@jest/globals';
import { Controller, Get, Injectable, Param } from '@nestjs/common';
import {
  arg,
  currentInvocation,
  DefinitionError,
  describePolicies,
  input,
  LockWith,
  perTask,
  RateLimit,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { closeAppsAfterEach, startHttp } from '../../support/http-app.js';

closeApplicationsAfterEach();
closeAppsAfterEach();

/** The options of the lock in effect, `undefined` when there is none. */
function lockOf(target: Parameters<typeof describePolicies>[0], method = 'run') {
  const { policies } = describePolicies(target, method);
  const found = policies.find(({ policy }) => policy === 'lock');
  return found && { key: found.key, ttl: found.options['ttl'], wait: found.options['wait'] };
}

abstract class ApplicationTask {
  @LockWith(arg(0), { ttl: 600 })
  async run(_id: string): Promise<string> {
    return 'base';
  }
}

class AsItIs extends ApplicationTask {}

class BareOverride extends ApplicationTask {
  override async run(id: string): Promise<string> {
    return id;
  }
}

class NewKey extends ApplicationTask {
  @LockWith('one for all')
  override async run(_id: string): Promise<string> {
    return 'new key';
  }
}

class NewOption extends ApplicationTask {
  @LockWith({ wait: 30 })
  override async run(_id: string): Promise<string> {
    return 'new option';
  }
}

class Inheriting extends ApplicationTask {
  @LockWith()
  override async run(_id: string): Promise<string> {
    return 'inheriting';
  }
}

class OffOnMethod extends ApplicationTask {
  @LockWith(false)
  override async run(_id: string): Promise<string> {
    return 'off';
  }
}

@LockWith(false)
class OffOnClass extends ApplicationTask {}

class OnAgainByKey extends OffOnClass {
  @LockWith('again')
  override async run(_id: string): Promise<string> {
    return 'on again';
  }
}

class OnAgainByOption extends OffOnMethod {
  @LockWith({ wait: 5 })
  override async run(_id: string): Promise<string> {
    return 'on again';
  }
}

class StillOff extends OffOnMethod {
  @LockWith()
  override async run(_id: string): Promise<string> {
    return 'still off';
  }
}

describe('What is in effect on a subclass?', () => {
  it.each([
    ['inherited as it is', AsItIs, { key: 'arg(0)', ttl: 600, wait: 0 }],
    ['an override without a decorator', BareOverride, { key: 'arg(0)', ttl: 600, wait: 0 }],
    ['a new key replaces, options stay', NewKey, { key: '"one for all"', ttl: 600, wait: 0 }],
    ['options merge, the key stays', NewOption, { key: 'arg(0)', ttl: 600, wait: 30 }],
    ['() inherits', Inheriting, { key: 'arg(0)', ttl: 600, wait: 0 }],
    ['(false) on the method', OffOnMethod, undefined],
    ['(false) on the class', OffOnClass, undefined],
    ['a later key turns on again', OnAgainByKey, { key: '"again"', ttl: 600, wait: 0 }],
    ['a later option turns on again', OnAgainByOption, { key: 'arg(0)', ttl: 600, wait: 5 }],
    ['() after (false) changes nothing', StillOff, undefined],
  ])('%s', (_, target, expected) => {
    expect(lockOf(target)).toEqual(expected);
  });

  it('the parent is what it was', () => {
    expect(lockOf(ApplicationTask)).toEqual({ key: 'arg(0)', ttl: 600, wait: 0 });
    expect(describePolicies(ApplicationTask, 'run').task).toBe('ApplicationTask.run');
    expect(describePolicies(AsItIs, 'run').task).toBe('AsItIs.run');
  });

  it('each policy is inherited by itself', () => {
    class Limited extends ApplicationTask {
      @RateLimit(arg(0), { max: 5, per: 60 })
      override async run(_id: string): Promise<string> {
        return 'limited';
      }
    }
    class LimitOff extends Limited {
      @RateLimit(false)
      override async run(_id: string): Promise<string> {
        return 'lock only';
      }
    }
    expect(describePolicies(Limited, 'run').policies.map(({ policy }) => policy)).toEqual([
      'rateLimit',
      'lock',
    ]);
    expect(describePolicies(LimitOff, 'run').policies.map(({ policy }) => policy)).toEqual([
      'lock',
    ]);
  });

  it('merges from base to leaf, in one class first the class, then the method', () => {
    @LockWith('base class', { ttl: 1, wait: 1, onBlank: 'fail', namespace: 'base-class' })
    abstract class Base {
      @LockWith({ wait: 2, onBlank: 'bypass', onStoreError: 'run' })
      async run(): Promise<void> {}
    }
    @LockWith('leaf class', { onBlank: 'fail', namespace: 'leaf-class' })
    class Leaf extends Base {
      @LockWith({ namespace: 'leaf-method' })
      override async run(): Promise<void> {}
    }
    expect(describePolicies(Leaf, 'run').policies).toEqual([
      {
        policy: 'lock',
        key: '"leaf class"',
        keyBase: 'leaf-method:Leaf.run',
        options: expect.objectContaining({
          ttl: 1,
          wait: 2,
          onBlank: 'fail',
          onStoreError: 'run',
          namespace: 'leaf-method',
        }),
      },
    ]);
    expect(describePolicies(Base, 'run').policies).toEqual([
      {
        policy: 'lock',
        key: '"base class"',
        keyBase: 'base-class:Base.run',
        options: expect.objectContaining({ ttl: 1, wait: 2, onBlank: 'bypass' }),
      },
    ]);
  });

  it('an option written as undefined inherits', () => {
    class Leaf extends ApplicationTask {
      @LockWith({ wait: undefined, ttl: undefined } as { wait?: number })
      override async run(_id: string): Promise<string> {
        return 'leaf';
      }
    }
    expect(lockOf(Leaf)).toEqual({ key: 'arg(0)', ttl: 600, wait: 0 });
  });
});

describe('What does describePolicies answer?', () => {
  class Described {
    @LockWith(async (id: string) => id)
    @RateLimit(arg(0), { max: 5, per: 60 })
    async asyncKey(_id: string): Promise<void> {}

    @RateLimit(arg(0), { max: 5, per: 60 })
    @LockWith(input('id'))
    async together(_order: { id: string }): Promise<void> {}

    @RateLimit({ max: 5, per: 60, limiter: () => ({ admitted: true }) })
    @LockWith()
    async ownLimiter(): Promise<void> {}

    async unguarded(): Promise<void> {}
  }

  it('which policies share a trip to the store', () => {
    expect(describePolicies(Described, 'together').batches).toEqual([['rateLimit', 'lock']]);
    expect(describePolicies(Described, 'asyncKey').batches).toEqual([['rateLimit'], ['lock']]);
    expect(describePolicies(Described, 'ownLimiter').batches).toEqual([['rateLimit'], ['lock']]);
  });

  it('frozen, all the way down', () => {
    const description = describePolicies(Described, 'together');
    const [policy] = description.policies;
    for (const part of [
      description,
      description.policies,
      policy,
      policy?.options,
      description.batches,
      description.batches[0],
    ]) {
      expect(part).toBeDefined();
      expect(Object.isFrozen(part)).toBe(true);
    }
  });

  it('a DefinitionError for a method that nothing guards', () => {
    expect(() => describePolicies(Described, 'unguarded')).toThrow(DefinitionError);
    expect(() => describePolicies(Described, 'unguarded')).toThrow('Described.unguarded');
  });
});

@Injectable()
class Reminders {
  constructor(readonly door: Door) {}

  @LockWith(arg(0))
  async send(_id: string): Promise<string> {
    await this.door.pass();
    return currentInvocation()?.task ?? 'none';
  }
}

@Injectable()
class InvoiceReminders extends Reminders {}

@Injectable()
class VisitReminders extends Reminders {}

@LockWith(false)
@Injectable()
class PreviewReminders extends Reminders {
  override async send(id: string): Promise<string> {
    return super.send(id);
  }
}

describe('Is one task per subclass kept apart from the others?', () => {
  it('subclasses of one method do not exclude each other', async () => {
    const application = await boot({ providers: [Door, InvoiceReminders, VisitReminders] });
    const running = [
      application.get(InvoiceReminders).send('42'),
      application.get(VisitReminders).send('42'),
    ];
    expect(application.get(Door).inside).toBe(2);
    expect(await application.store.get('cmdx:lock:InvoiceReminders.send:42')).toBeDefined();
    expect(await application.store.get('cmdx:lock:VisitReminders.send:42')).toBeDefined();
    application.get(Door).open();
    await expect(Promise.all(running)).resolves.toEqual([
      'InvoiceReminders.send',
      'VisitReminders.send',
    ]);
  });

  it('turned off on the class, an override with super takes no lease', async () => {
    const application = await boot({ providers: [Door, PreviewReminders] });
    const preview = application.get(PreviewReminders);
    const running = [preview.send('42'), preview.send('42')];
    expect(application.get(Door).inside).toBe(2);
    application.get(Door).open();
    await Promise.all(running);
    expect(application.telemetry.of('lock_acquired')).toEqual([]);
  });

  it('through three levels of super there is one envelope', async () => {
    class One {
      @LockWith('same')
      async run(): Promise<number> {
        return 1;
      }
    }
    class Two extends One {
      @LockWith({ ttl: 10 })
      override async run(): Promise<number> {
        return 1 + (await super.run());
      }
    }
    @Injectable()
    class Three extends Two {
      override async run(): Promise<number> {
        return 1 + (await super.run());
      }
    }
    const application = await boot({ providers: [Three] });
    await expect(application.get(Three).run()).resolves.toBe(3);
    expect(application.telemetry.of('task_started')).toHaveLength(1);
    expect(application.telemetry.of('lock_acquired')).toHaveLength(1);
  });

  it('a method named by a symbol is guarded too', async () => {
    const tick = Symbol('tick');
    @Injectable()
    class Symbolic {
      @LockWith('ticks')
      async [tick](): Promise<string | undefined> {
        return currentInvocation()?.lock?.key;
      }
    }
    const application = await boot({ providers: [Symbolic] });
    await expect(application.get(Symbolic)[tick]()).resolves.toBe('cmdx:lock:Symbolic.tick:ticks');
  });
});

abstract class ReportsBase {
  @Get('inherited')
  inherited(): string {
    return 'inherited';
  }
}

@RateLimit(perTask, { max: 1, per: 60 })
@Controller('reports')
class Reports extends ReportsBase {
  @Get('sync')
  sync(): { readonly sync: boolean } {
    return { sync: this.helper() };
  }

  @Get('async')
  async async(): Promise<string> {
    return 'async';
  }

  @RateLimit({ max: 2 })
  @Get('twice')
  async twice(): Promise<string> {
    return 'twice';
  }

  @RateLimit(false)
  @Get('free')
  async free(): Promise<string> {
    return 'free';
  }

  /** No handler: a class decorator leaves it alone, and it stays synchronous. */
  helper(): boolean {
    return true;
  }
}

@Controller('plain-reports')
class PlainReports extends ReportsBase {}

@RateLimit(false)
@Controller('open-reports')
class OpenReports extends Reports {}

@RateLimit({ max: 2 })
@Controller('generous-reports')
class GenerousReports extends Reports {}

async function statuses(
  get: (path: string) => Promise<{ readonly status: number }>,
  path: string,
): Promise<readonly number[]> {
  const found: number[] = [];
  for (let call = 0; call < 3; call++) found.push((await get(path)).status);
  return found;
}

describe('What does a decorator on a controller reach?', () => {
  it.each([
    ['a synchronous handler, which becomes asynchronous', 'reports/sync', [200, 429, 429]],
    ['an asynchronous handler', 'reports/async', [200, 429, 429]],
    ['an inherited handler', 'reports/inherited', [200, 429, 429]],
    ['with the options of the method on top', 'reports/twice', [200, 200, 429]],
    ['not a handler that says (false)', 'reports/free', [200, 200, 200]],
    ['not the same handler of another subclass', 'plain-reports/inherited', [200, 200, 200]],
    ['nothing on a subclass that says (false)', 'open-reports/sync', [200, 200, 200]],
    ['the handlers of a subclass, with its options', 'generous-reports/sync', [200, 200, 429]],
    [
      'a handler of the base that said (false): a later option turns on again',
      'generous-reports/free',
      [200, 200, 429],
    ],
  ])('%s', async (_, path, expected) => {
    const { get } = await startHttp('express', {
      controllers: [Reports, PlainReports, OpenReports, GenerousReports],
    });
    expect(await statuses(get, `/${path}`)).toEqual(expected);
  });

  it('answers of synchronous handlers are as they were', async () => {
    const { get } = await startHttp('express', { controllers: [Reports] });
    expect((await get('/reports/sync')).body).toEqual({ sync: true });
  });

  it('a lock of the class holds one handler, not the whole class', async () => {
    const door = new Door();
    @LockWith(input('id'))
    @Controller('orders')
    class Orders {
      @Get(':id/pay')
      async pay(@Param('id') _id: string): Promise<void> {
        await door.pass();
      }

      @Get(':id/ship')
      async ship(@Param('id') _id: string): Promise<string> {
        return 'shipped';
      }
    }
    const { get } = await startHttp('express', { controllers: [Orders] });
    const paying = get('/orders/7/pay');
    while (door.inside === 0) await new Promise((resolve) => setImmediate(resolve));
    expect((await get('/orders/7/pay')).status).toBe(409);
    expect((await get('/orders/7/ship')).status).toBe(200);
    door.open();
    expect((await paying).status).toBe(200);
  });
});

@LockWith('by the class', { ttl: 60 })
@Injectable()
class MixedService {
  constructor(readonly door: Door) {}

  @LockWith()
  async guarded(): Promise<void> {
    await this.door.pass();
  }

  async unguarded(): Promise<void> {
    await this.door.pass();
  }
}

@LockWith(arg(0))
@Injectable()
class Idle {
  async run(_id: string): Promise<void> {}
}

@LockWith(arg(0))
abstract class DefaultsOnly {}

@Injectable()
class IdleHeir extends DefaultsOnly {
  async run(_id: string): Promise<void> {}
}

@Injectable()
class BusyHeir extends DefaultsOnly {
  @LockWith()
  async run(_id: string): Promise<void> {}
}

@LockWith(arg(0))
@Injectable()
class OtherPolicyOnly {
  @RateLimit({ max: 1, per: 1 })
  async run(_id: string): Promise<void> {}
}

describe('What does a decorator on a service reach?', () => {
  it('the methods that carry the same decorator, and no other', async () => {
    const application = await boot({ providers: [Door, MixedService] });
    const service = application.get(MixedService);
    const running = [service.guarded(), service.unguarded(), service.unguarded()];
    await expect(service.guarded()).rejects.toMatchObject({
      code: 'busy',
      metadata: { lockKey: 'cmdx:lock:MixedService.guarded:by the class', retryAfter: 60 },
    });
    expect(application.get(Door).inside).toBe(3);
    application.get(Door).open();
    await Promise.all(running);
  });

  it.each([
    ['its own', Idle],
    ['an inherited one', IdleHeir],
    ['one that only another policy answers', OtherPolicyOnly],
  ])('nothing at all is a DefinitionError: %s', async (_, target) => {
    const booting = boot({ providers: [target] });
    await expect(booting).rejects.toThrow(DefinitionError);
    await expect(booting).rejects.toThrow(`${target.name}: @LockWith on the class`);
  });

  it('a base class that only holds defaults is fine', async () => {
    const application = await boot({ providers: [BusyHeir] });
    await application.get(BusyHeir).run('42');
    expect(application.telemetry.of('lock_acquired')).toMatchObject([
      { payload: { lockKey: 'cmdx:lock:BusyHeir.run:42' } },
    ]);
  });
});

/** What happened, in order, and whether the lease was held then. */
class Journal {
  readonly lines: string[] = [];
  key = '';
  get: (key: string) => Promise<string | undefined> = async () => undefined;

  async note(what: string): Promise<void> {
    const holder = await this.get(this.key);
    this.lines.push(`${what} ${holder === undefined ? 'free' : 'held'}`);
  }
}

const journal = new Journal();

/** Replaces the method, as decorators of transactions do, and knows nothing of us. */
function Transactional(): MethodDecorator {
  return (_target, _method, descriptor) => {
    const original = descriptor.value as unknown as (...args: unknown[]) => Promise<unknown>;
    const replaced = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
      await journal.note('begin');
      const value = await original.apply(this, args);
      await journal.note('commit');
      return value;
    };
    return { ...descriptor, value: replaced as never };
  };
}

class Ledger {
  @Transactional()
  @LockWith(arg(0))
  async post(_account: string): Promise<string> {
    await journal.note('body');
    return 'posted';
  }
}

@Injectable()
class OwnAbove extends Ledger {
  @Transactional()
  @LockWith()
  override async post(_account: string): Promise<string> {
    await journal.note('body');
    return 'posted';
  }
}

@Injectable()
class OwnBelow {
  @LockWith(arg(0))
  @Transactional()
  async post(_account: string): Promise<string> {
    await journal.note('body');
    return 'posted';
  }
}

@Injectable()
class OwnBetween {
  @RateLimit(arg(0), { max: 9, per: 60 })
  @Transactional()
  @LockWith(arg(0))
  async post(_account: string): Promise<string> {
    await journal.note('body');
    return 'posted';
  }
}

@Injectable()
class FromTheBase extends Ledger {}

@Injectable()
class ForeignOverride extends Ledger {
  @Transactional()
  override async post(_account: string): Promise<string> {
    await journal.note('body');
    return 'posted';
  }
}

@Injectable()
class SuperBelowForeign extends Ledger {
  @Transactional()
  override async post(account: string): Promise<string> {
    return super.post(account);
  }
}

const ONE_TRANSACTION = ['begin held', 'body held', 'commit held'];

describe('Does the lease outlive the COMMIT of a decorator that replaces the method?', () => {
  it.each([
    ['it stands above ours', OwnAbove, ONE_TRANSACTION],
    ['it stands below ours', OwnBelow, ONE_TRANSACTION],
    ['it stands between ours', OwnBetween, ONE_TRANSACTION],
    ['it stands above ours on a base that is no provider', FromTheBase, ONE_TRANSACTION],
    ['a bare override carries it', ForeignOverride, ONE_TRANSACTION],
    [
      'override and base carry it',
      SuperBelowForeign,
      ['begin held', 'begin held', 'body held', 'commit held', 'commit held'],
    ],
  ])('%s', async (_, target, expected) => {
    const application = await boot({ providers: [target] });
    journal.lines.length = 0;
    journal.key = `cmdx:lock:${target.name}.post:42`;
    journal.get = (key) => application.store.get(key);
    await expect(application.get(target as typeof Ledger).post('42')).resolves.toBe('posted');
    await journal.note('after');
    expect(journal.lines).toEqual([...expected, 'after free']);
    expect(application.telemetry.of('task_started')).toHaveLength(1);
    expect(application.telemetry.of('lock_acquired')).toHaveLength(1);
  });

  it('base and leaf in one application: each call has one envelope of its own class', async () => {
    @Injectable()
    class Main extends Ledger {}
    @Injectable()
    class Side extends Main {}
    for (const providers of [
      [Main, Side],
      [Side, Main],
    ]) {
      const application = await boot({ providers });
      journal.lines.length = 0;
      journal.key = 'cmdx:lock:Side.post:42';
      journal.get = (key) => application.store.get(key);
      await application.get(Side).post('42');
      expect(journal.lines).toEqual(ONE_TRANSACTION);
      await application.get(Main).post('42');
      expect(application.telemetry.of('task_started').map(({ task }) => task)).toEqual([
        'Side.post',
        'Main.post',
      ]);
    }
  });

  it('a base that is no provider is not touched', async () => {
    const before = Object.getOwnPropertyDescriptor(Ledger.prototype, 'post');
    await boot({ providers: [FromTheBase, ForeignOverride] });
    expect(Object.getOwnPropertyDescriptor(Ledger.prototype, 'post')).toEqual(before);
  });

  it('an accessor above ours is a DefinitionError', async () => {
    const Autobind: MethodDecorator = (_target, _method, descriptor) => {
      const method = descriptor.value as unknown as (...args: unknown[]) => unknown;
      return {
        configurable: true,
        get(this: unknown) {
          return method.bind(this) as never;
        },
      };
    };
    @Injectable()
    class Bound {
      @Autobind
      @LockWith('bound')
      async run(): Promise<void> {}
    }
    const booting = boot({ providers: [Bound] });
    await expect(booting).rejects.toThrow(DefinitionError);
    await expect(booting).rejects.toThrow(/Bound\.run.*accessor.*below ours/);
  });
});
