import { describe, expect, it } from '@jest/globals';
import { Body, Controller, Get, Injectable, Param, Post, Query, Req, Res } from '@nestjs/common';
import {
  input,
  type Invocation,
  type KeyResolver,
  LockWith,
  Named,
  OnTelemetry,
  RateLimit,
  segment,
  type TelemetryEvent,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootMessage } from '../../support/definition.js';

closeApplicationsAfterEach();

describe('which limits cannot work?', () => {
  it('one without max, one without per', async () => {
    @Injectable()
    class NoMax {
      @RateLimit({ per: 60 })
      async send(): Promise<void> {}
    }
    @Injectable()
    class NoPer {
      @RateLimit('key', { max: 5 })
      async send(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [NoMax] }))).toBe(
      'NoMax.send: @RateLimit: expected the option "max", got none',
    );
    expect(await bootMessage(boot({ providers: [NoPer] }))).toBe(
      'NoPer.send: @RateLimit: expected the option "per", got none',
    );
  });

  it('a bucket in which one start can never fit; a window reads no cost', async () => {
    @Injectable()
    class Bucket {
      @RateLimit({ max: 5, per: 60, limiter: 'leaky_bucket', cost: 6 })
      async send(): Promise<void> {}
    }
    @Injectable()
    class Window {
      @RateLimit({ max: 5, per: 60, cost: 6 })
      async send(): Promise<string> {
        return 'sent';
      }
    }
    expect(await bootMessage(boot({ providers: [Bucket] }))).toBe(
      'Bucket.send: @RateLimit option "cost": expected at most max (5), got 6',
    );
    const { get } = await boot({ providers: [Window] });
    await expect(get(Window).send()).resolves.toBe('sent');
  });

  it('a bucket larger than integers are exact', async () => {
    @Injectable()
    class Bucket {
      @RateLimit({ max: 1_000_000, per: '365d', limiter: 'leaky_bucket' })
      async send(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Bucket] }))).toMatch(
      /^Bucket\.send: @RateLimit: expected max x per below \d+ seconds, got 1000000 x 31536000$/,
    );
  });

  it('max: 0 is legal, with any limiter', async () => {
    @Injectable()
    class Closed {
      @RateLimit({ max: 0, per: 60 })
      async window(): Promise<void> {}

      @RateLimit({ max: 0, per: 60, limiter: 'leaky_bucket' })
      async bucket(): Promise<void> {}
    }
    await boot({ providers: [Closed] });
  });

  it('an unknown limiter, and the registered ones are listed', async () => {
    @Injectable()
    class Unknown {
      @RateLimit({ max: 5, per: 60, limiter: 'fixed-window' })
      async send(): Promise<void> {}
    }
    expect(
      await bootMessage(
        boot({ providers: [Unknown] }, { limiters: { mine: () => ({ admitted: true }) } }),
      ),
    ).toBe(
      'Unknown.send: @RateLimit option "limiter": expected a registered limiter (fixed_window, leaky_bucket, mine), got "fixed-window"',
    );
  });
});

describe('whose keys must not meet?', () => {
  const makeAccounts = (options: object = {}) => {
    @Injectable()
    class Accounts {
      @LockWith('a', options)
      async reconcile(): Promise<void> {}
    }
    return Accounts;
  };

  it('those of two classes of one name', async () => {
    expect(await bootMessage(boot({ providers: [makeAccounts(), makeAccounts()] }))).toBe(
      'Accounts.reconcile: @LockWith: expected one class of that name, got two, whose keys would meet (cmdx:lock:Accounts.reconcile); rename one, or give them a "name" or "namespace"',
    );
  });

  it('unless a namespace or a name keeps them apart', async () => {
    await boot({ providers: [makeAccounts(), makeAccounts({ namespace: 'app:lock' })] });
    await boot({ providers: [makeAccounts({ name: 'x' }), makeAccounts()] });
  });

  it('those of a lock and a limit: the counter would hold the lock', async () => {
    @Injectable()
    class Mail {
      @RateLimit('a', { max: 5, per: 60, namespace: 'app' })
      @LockWith('b', { namespace: 'app' })
      async send(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Mail] }))).toBe(
      'Mail.send: @LockWith: expected keys of its own, got those of @RateLimit on Mail.send (app:Mail.send); give one another "namespace"',
    );
  });

  it('the same class in two modules is one class', async () => {
    const Accounts = makeAccounts();
    class One {}
    class Two {}
    await boot({
      imports: [
        { module: One, providers: [Accounts] },
        { module: Two, providers: [Accounts] },
      ],
    });
  });

  it.each([
    ['max', { max: 6 }, '5', '6'],
    ['per', { per: 61 }, '60', '61'],
    ['limiter', { limiter: 'leaky_bucket' }, '"fixed_window"', '"leaky_bucket"'],
  ])('methods that share a limit by name must agree in %s', async (option, other, ours, theirs) => {
    @Injectable()
    class Mail {
      @RateLimit({ max: 5, per: 60, name: 'mail' })
      async first(): Promise<void> {}

      @RateLimit({ max: 5, per: 60, name: 'mail', ...other })
      async second(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Mail] }))).toBe(
      `Mail.second: @RateLimit option "${option}": expected ${ours} as on Mail.first, which shares the name "mail"; got ${theirs}`,
    );
  });

  it('so must a method and one that is named like its task, in either order', async () => {
    @Injectable()
    class Mail {
      @RateLimit({ max: 5, per: 60 })
      async send(): Promise<void> {}

      @RateLimit({ max: 6, per: 60, name: 'Mail.send' })
      async resend(): Promise<void> {}
    }
    @Injectable()
    class Letters {
      @RateLimit({ max: 6, per: 60, name: 'Letters.send' })
      async resend(): Promise<void> {}

      @RateLimit({ max: 5, per: 60 })
      async send(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Mail] }))).toBe(
      'Mail.resend: @RateLimit option "max": expected 5 as on Mail.send, which shares the name "Mail.send"; got 6',
    );
    expect(await bootMessage(boot({ providers: [Letters] }))).toBe(
      'Letters.send: @RateLimit option "max": expected 6 as on Letters.resend, which shares the name "Letters.send"; got 5',
    );
  });

  it('they agree however the time is written, and in two namespaces they share nothing', async () => {
    @Injectable()
    class Mail {
      @RateLimit({ max: 5, per: 60, name: 'mail' })
      async first(): Promise<void> {}

      @RateLimit({ max: 5, per: '1m', name: 'mail' })
      async second(): Promise<void> {}

      @RateLimit({ max: 9, per: 1, name: 'mail', namespace: 'app:rl' })
      async third(): Promise<void> {}

      @LockWith({ name: 'mail', ttl: 5 })
      async fourth(): Promise<void> {}
    }
    await boot({ providers: [Mail] });
  });
});

describe('which keys can never have a value?', () => {
  it('input() of a name that no parameter has and no argument can carry', async () => {
    @Injectable()
    class Accounts {
      @LockWith(input('accountId'))
      async reconcile(@Named('account') _account: string, _times: number): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Accounts] }))).toBe(
      "Accounts.reconcile: input('accountId') can never have a value: no parameter is named so, and none can carry the property (the names there are: account). " +
        "Name one with @Named('accountId') or use arg(position); where a class decorator reaches a method it does not fit, write the decorator with (false) there",
    );
  });

  it('on a handler too, with the names of its route, inside segment`` too', async () => {
    @Controller('accounts')
    class Accounts {
      @RateLimit(segment`x:${input('accountId')}`, { max: 1, per: 1 })
      @Post(':id')
      async reconcile(@Param('id') _id: string, @Query('force') _force: boolean): Promise<void> {}
    }
    expect(await bootMessage(boot({ controllers: [Accounts] }))).toContain(
      '(the names there are: force, id)',
    );
  });

  it('on a method without parameters, and through a class decorator', async () => {
    @LockWith(input('id'))
    @Controller('accounts')
    class Accounts {
      @Get(':id')
      async one(@Param('id') id: string): Promise<string> {
        return id;
      }

      @Get()
      async all(): Promise<void> {}
    }
    expect(await bootMessage(boot({ controllers: [Accounts] }))).toMatch(
      /^Accounts\.all: input\('id'\) can never have a value: .*no parameter has a name.*\(false\) there$/,
    );
  });

  it('written with (false) there, the class boots', async () => {
    @LockWith(input('id'))
    @Controller('accounts')
    class Accounts {
      @Get(':id')
      async one(@Param('id') id: string): Promise<string> {
        return id;
      }

      @LockWith(false)
      @Get()
      async all(): Promise<void> {}
    }
    await boot({ controllers: [Accounts] });
  });

  it('a parameter that may be an object can carry it', async () => {
    @Controller('accounts')
    class Accounts {
      @LockWith(input('accountId'))
      @Post()
      async reconcile(@Req() _request: object, @Body() _body: object): Promise<void> {}
    }
    await boot({ controllers: [Accounts] });
  });

  it('a name that two parameters have', async () => {
    @Controller('accounts')
    class Accounts {
      @LockWith(input('id'))
      @Post(':id')
      async reconcile(@Param('id') _id: string, @Query('id') _other: string): Promise<void> {}
    }
    expect(await bootMessage(boot({ controllers: [Accounts] }))).toMatch(
      /^Accounts\.reconcile: input\('id'\) is ambiguous: the parameters \d and \d are both named so$/,
    );
  });

  it('a resolver that no module provides', async () => {
    @Injectable()
    class TenantKey implements KeyResolver {
      call(invocation: Invocation): string {
        return String(invocation.args[0]);
      }
    }
    @Injectable()
    class Accounts {
      @LockWith(TenantKey)
      async reconcile(tenant: string): Promise<string> {
        return tenant;
      }
    }
    expect(await bootMessage(boot({ providers: [Accounts] }))).toMatch(
      /^Accounts\.reconcile: expected the key resolver TenantKey to be a singleton provider of some module \(/,
    );
    const { get, telemetry } = await boot({ providers: [Accounts, TenantKey] });
    await get(Accounts).reconcile('t1');
    expect(telemetry.of('lock_acquired')[0]?.payload.lockKey).toBe(
      'cmdx:lock:Accounts.reconcile:t1',
    );
  });
});

describe('what else cannot work?', () => {
  it('a gate that names a method which instances do not have', async () => {
    @Injectable()
    class Accounts {
      isOpen = true;

      @LockWith('a', { unless: 'isOpen' })
      async reconcile(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Accounts] }))).toBe(
      'Accounts.reconcile: @LockWith option "unless": expected the name of a method of Accounts, got "isOpen"',
    );
  });

  it('a class decorator that reaches no method, own or inherited', async () => {
    @LockWith('a')
    @Injectable()
    class Service {
      async reconcile(): Promise<void> {}
    }
    @Injectable()
    class Heir extends Service {}
    for (const target of [Service, Heir]) {
      expect(await bootMessage(boot({ providers: [target] }))).toBe(
        `${target.name}: @LockWith on the class reaches none of its methods: it has no Nest handler, and no method carries @LockWith() itself`,
      );
    }
  });

  it('a handler that answers by itself and could be skipped', async () => {
    @Controller()
    class Reports {
      @LockWith({ onBusy: 'skip' })
      @Get()
      async report(@Res() _response: object): Promise<void> {}
    }
    @Controller()
    class Fine {
      @LockWith({ onBusy: 'skip' })
      @Get('a')
      async passthrough(@Res({ passthrough: true }) _response: object): Promise<void> {}

      @LockWith()
      @Get('b')
      async fails(@Res() _response: object): Promise<void> {}
    }
    expect(await bootMessage(boot({ controllers: [Reports] }))).toBe(
      'Reports.report: @LockWith: expected a handler that Nest answers with its value, because a refusal skips the body; got @Res() or @Next() without { passthrough: true }',
    );
    await boot({ controllers: [Fine] });
  });

  it('a listener that is no singleton', async () => {
    @Injectable({ scope: 2 })
    class Listener {
      @OnTelemetry('lock_busy')
      busy(_event: TelemetryEvent<'lock_busy'>): void {}
    }
    expect(await bootMessage(boot({ providers: [Listener] }))).toBe(
      "Listener.busy: @OnTelemetry('lock_busy'): expected a singleton provider, got one that is request-scoped or transient",
    );
  });

  it('a guarded class without a name', async () => {
    const Nameless = (() =>
      class {
        async reconcile(): Promise<void> {}
      })();
    const descriptor = Object.getOwnPropertyDescriptor(
      Nameless.prototype,
      'reconcile',
    ) as TypedPropertyDescriptor<() => Promise<void>>;
    const guarded: unknown = (LockWith('a') as (...args: unknown[]) => unknown)(
      Nameless.prototype,
      'reconcile',
      descriptor,
    );
    Object.defineProperty(Nameless.prototype, 'reconcile', guarded as PropertyDescriptor);
    expect(await bootMessage(boot({ providers: [Nameless] }))).toContain('has no name');
  });
});
