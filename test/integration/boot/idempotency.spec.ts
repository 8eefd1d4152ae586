import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { Body, Controller, Headers, Injectable, Logger, Param, Post, Res } from '@nestjs/common';
import {
  arg,
  type CmdxModuleOptions,
  describePolicies,
  fromRequest,
  header,
  IdempotentBy,
  type IdempotencyOptions,
  input,
  LockWith,
  perTask,
  RateLimit,
  segment,
} from 'nestjs-cmdx';
import { Observable, of } from 'rxjs';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { bootMessage, definitionMessage } from '../../support/definition.js';

closeApplicationsAfterEach();
let warnings: string[];
beforeEach(() => {
  warnings = [];
  jest.spyOn(Logger.prototype, 'warn').mockImplementation((line: unknown) => {
    warnings.push(String(line));
  });
});
afterEach(() => void jest.restoreAllMocks());

/** Options as plain JavaScript may write them. */
const wrong = (options: object): IdempotencyOptions => options as IdempotencyOptions;

/** A controller whose one handler is guarded as told. */
function controllerWith(...written: Parameters<typeof IdempotentBy>) {
  class Payments {
    async create(_key: string, _headers: object, _id: string, _body: object): Promise<object> {
      return {};
    }
  }
  const { prototype } = Payments;
  const descriptor = Object.getOwnPropertyDescriptor(prototype, 'create') as never;
  Headers('Idempotency-Key')(prototype, 'create', 0);
  Headers()(prototype, 'create', 1);
  Param('id')(prototype, 'create', 2);
  Body()(prototype, 'create', 3);
  const guarded: unknown = (IdempotentBy as (...args: unknown[]) => MethodDecorator)(...written)(
    prototype,
    'create',
    descriptor,
  );
  Object.defineProperty(prototype, 'create', guarded as PropertyDescriptor);
  Post(':id')(prototype, 'create', Object.getOwnPropertyDescriptor(prototype, 'create') as never);
  Controller('payments')(Payments);
  return Payments;
}

describe('What does a method need that is idempotent?', () => {
  it('a key, its own or an inherited one', async () => {
    @Injectable()
    class Orders {
      @IdempotentBy({ ttl: 5 })
      async ship(): Promise<void> {}
    }
    @Injectable()
    class Bare {
      @IdempotentBy()
      async ship(): Promise<void> {}
    }
    for (const target of [Orders, Bare]) {
      expect(await bootMessage(boot({ providers: [target] }))).toBe(
        `${target.name}.ship: @IdempotentBy: expected a key, own or inherited, got none; perTask lets the work of the whole task be done once per ttl`,
      );
    }
  });

  it('a Promise to return', async () => {
    @Injectable()
    class Written {
      @IdempotentBy(arg(0))
      watch(_id: string): Observable<number> {
        return of(1);
      }
    }
    @Injectable()
    class Told {
      @LockWith({ stream: true })
      @IdempotentBy(arg(0))
      watch(_id: string) {
        return of(1);
      }
    }
    for (const target of [Written, Told]) {
      expect(await bootMessage(boot({ providers: [target] }))).toBe(
        `${target.name}.watch: @IdempotentBy: expected a method that returns a Promise, got one that returns an Observable, whose values cannot be kept; where a class decorator reaches a method that it does not fit, write the decorator with (false) there`,
      );
    }
  });

  it('an answer that Nest gives, where a duplicate may be given it again', async () => {
    const make = (options: IdempotencyOptions) => {
      class Reports {
        @IdempotentBy(arg(1), options)
        @Post(':id')
        async write(@Res() _response: object, @Param('id') _id: string): Promise<void> {}
      }
      return (Controller()(Reports), Reports);
    };
    expect(await bootMessage(boot({ controllers: [make({})] }))).toBe(
      'Reports.write: @IdempotentBy: expected a handler that Nest answers with its value, because a duplicate is given the first answer; got @Res() or @Next() without { passthrough: true }',
    );
    expect(await bootMessage(boot({ controllers: [make({ onInProgress: 'skip' })] }))).toContain(
      'because a refusal skips the body',
    );
    await boot({ controllers: [make({ onDuplicate: 'fail' })] });
  });
});

describe('Which keys need a scope?', () => {
  it.each([
    ["header('Idempotency-Key')", header('Idempotency-Key')],
    ['segment`v1:${...}`', segment`v1:${header('Idempotency-Key')}`],
    ['segment`${...}-${...}`', segment`${'v1'}-${header('x-request-id')}`],
    ["input('Idempotency-Key')", input('Idempotency-Key')],
    ['arg(0)', arg(0)],
    ["arg(1, 'idempotency-key')", arg(1, 'idempotency-key')],
    ['segment`${...}:${...}`', segment`${arg(0)}:${input('Idempotency-Key')}`],
  ])('%s, because clients choose all of it', async (text, key) => {
    expect(await bootMessage(boot({ controllers: [controllerWith(key)] }))).toBe(
      `Payments.create: @IdempotentBy: expected the option "scope", because clients choose the key ${text} and one must not get another's answer; for example scope: fromRequest((request) => request.user.id), or scope: 'shared' if all clients share their keys; got none`,
    );
    await boot({ controllers: [controllerWith(key, { scope: 'shared' })] });
    await boot({ controllers: [controllerWith(key, { scope: fromRequest(() => 'ada') })] });
    await boot(
      { controllers: [controllerWith(key)] },
      { defaults: { idempotency: { scope: fromRequest(() => 'ada') } } },
    );
  });

  it.each([
    ['a route parameter', input('id')],
    ['one beside a header', segment`${input('id')}:${header('Idempotency-Key')}`],
    ['a user beside a header', segment`${fromRequest(() => 'ada')}:${header('Idempotency-Key')}`],
    ['the body', arg(3, 'reference')],
    ['a function, whatever it reads', (key: string) => key],
    ['a literal', 'nightly'],
    ['the task', perTask],
  ])('not %s', async (_name, key) => {
    await boot({ controllers: [controllerWith(key as never)] });
  });

  it('nor is a service forgiven, which reads the header of the request around it', async () => {
    @Injectable()
    class Orders {
      @IdempotentBy(header('Idempotency-Key'))
      async ship(): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Orders] }))).toContain(
      'Orders.ship: @IdempotentBy: expected the option "scope"',
    );
  });
});

describe('Which options are refused where they are written?', () => {
  const DURATION =
    "more than zero seconds, or a string such as '250ms', '30s', '10m', '24h', '7d'; got";
  it.each([
    [{ ttl: 0 }, `option "ttl": expected ${DURATION} 0`],
    [{ ttl: Number.NaN }, `option "ttl": expected ${DURATION} NaN`],
    [{ lease: '1x' }, `option "lease": expected ${DURATION} "1x"`],
    [{ lease: -1 }, `option "lease": expected ${DURATION} -1`],
    [{ wait: 0 }, `option "wait": expected ${DURATION} 0`],
    [{ maxBytes: -1 }, 'option "maxBytes": expected a whole number from 0, got -1'],
    [{ maxBytes: 1.5 }, 'option "maxBytes": expected a whole number from 0, got 1.5'],
    [
      { scope: 'tenant' },
      `option "scope": expected 'shared' or a key resolver such as fromRequest(...), got "tenant"`,
    ],
    [
      { scope: perTask },
      `option "scope": expected 'shared' or a key resolver such as fromRequest(...), got an object (Object)`,
    ],
    [
      { codec: {} },
      'option "codec": expected an object with encode() and decode(), got an object (Object)',
    ],
    [{ returns: 'User' }, 'option "returns": expected a class, got "User"'],
    [{ returns: () => ({}) }, 'option "returns": expected a class, got function returns'],
    [
      { fingerprint: 5 },
      `option "fingerprint": expected 'request', false, a function or an object with call(), got 5`,
    ],
    [
      { fingerprint: true },
      `option "fingerprint": expected 'request', false, a function or an object with call(), got true`,
    ],
    [
      { onDuplicate: 'rerun' },
      `option "onDuplicate": expected 'replay' or 'skip' or 'fail', got "rerun"`,
    ],
    [
      { onInProgress: 'run' },
      `option "onInProgress": expected 'fail' or 'skip' or 'wait', got "run"`,
    ],
    [{ onAbandoned: 'skip' }, `option "onAbandoned": expected 'fail' or 'rerun', got "skip"`],
    [{ stream: true }, 'unknown option "stream"; expected one of '],
    [{ onBusy: 'skip' }, 'unknown option "onBusy"; expected one of '],
  ])('%p', (options, expected) => {
    const define = (): unknown => {
      class Orders {
        @IdempotentBy('key', wrong(options))
        async ship(): Promise<void> {}
      }
      return Orders;
    };
    expect(definitionMessage(define)).toContain('Orders.ship: @IdempotentBy');
    expect(definitionMessage(define)).toContain(expected);
  });

  it('a key that is none, and the forms that there are', () => {
    const define = (): unknown => {
      class Orders {
        @IdempotentBy(5 as never)
        async ship(): Promise<void> {}
      }
      return Orders;
    };
    expect(definitionMessage(define)).toBe(
      'Orders.ship: @IdempotentBy: expected (key, options), (key), (options), (false) or (), got (5)',
    );
  });
});

describe("Which of the module's defaults are refused?", () => {
  it.each([
    [{ onDuplicate: 'skip' }, 'must be written on the method'],
    [{ onInProgress: 'skip' }, 'must be written on the method'],
    [{ name: 'order' }, 'must be written on the method'],
    [{ returns: class User {} }, 'must be written on the method'],
    [{ ttl: 'soon' }, 'option "ttl": expected more than zero seconds'],
    [{ stream: true }, 'unknown option "stream"'],
    [{ max: 5 }, 'unknown option "max"'],
  ])('%p', async (idempotency, expected) => {
    const options = { defaults: { idempotency } } as unknown as CmdxModuleOptions;
    const message = await bootMessage(boot({}, options));
    expect(message).toContain('CmdxModule.forRoot() option "defaults.idempotency"');
    expect(message).toContain(expected);
  });

  it('and the others fill in what the decorators leave out', async () => {
    @Injectable()
    class Orders {
      @IdempotentBy(arg(0))
      async brief(_id: string): Promise<number> {
        return Math.random();
      }

      @IdempotentBy(arg(0), { ttl: '1h', onDuplicate: 'replay' })
      async long(_id: string): Promise<number> {
        return Math.random();
      }
    }
    const { get, clock } = await boot(
      { providers: [Orders] },
      { defaults: { idempotency: { ttl: 5, onDuplicate: 'fail' } } },
    );
    const [, long] = [await get(Orders).brief('1'), await get(Orders).long('1')];
    await expect(get(Orders).brief('1')).rejects.toMatchObject({ code: 'duplicate' });
    await clock.advance('5s');
    await get(Orders).brief('1');
    await expect(get(Orders).long('1')).resolves.toBe(long);
  });
});

describe('What is only warned of?', () => {
  it('times that look like milliseconds, once for each decorator', async () => {
    @Injectable()
    class Orders {
      @IdempotentBy(arg(0), { ttl: 86_400_000, lease: 60_000, wait: 30_000 })
      async ship(_id: string): Promise<void> {}
    }
    @Injectable()
    class Fine {
      @IdempotentBy(arg(0), { ttl: 86_400.5, lease: 600, wait: '30000s' })
      async ship(_id: string): Promise<void> {}
    }
    await boot({ providers: [Orders, Fine] });
    expect(warnings.toSorted()).toEqual([
      `Orders.ship: @IdempotentBy option "lease": 60000 seconds; did you mean '60s'?`,
      `Orders.ship: @IdempotentBy option "ttl": 86400000 seconds; did you mean '86400s'?`,
      `Orders.ship: @IdempotentBy option "wait": 30000 seconds; did you mean '30s'?`,
    ]);
    await boot({}, { defaults: { idempotency: { ttl: 86_400_000 } } });
    expect(warnings.at(-1)).toContain('"defaults.idempotency" option "ttl": 86400000 seconds');
  });
});

describe('Whose keys must not meet?', () => {
  it('those of two policies', async () => {
    @Injectable()
    class Orders {
      @LockWith(arg(0), { namespace: 'app' })
      @IdempotentBy(arg(0), { namespace: 'app' })
      async ship(_id: string): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Orders] }))).toBe(
      'Orders.ship: @IdempotentBy: expected keys of its own, got those of @LockWith on Orders.ship (app:Orders.ship); give one another "namespace"',
    );
  });

  it('those of two classes of one name', async () => {
    const make = () => {
      class Orders {
        @IdempotentBy(arg(0))
        async ship(_id: string): Promise<void> {}
      }
      return (Injectable()(Orders), Orders);
    };
    expect(await bootMessage(boot({ providers: [make(), make()] }))).toContain(
      'Orders.ship: @IdempotentBy: expected one class of that name, got two',
    );
  });
});

describe('what does describePolicies say of a scope that only the module has?', () => {
  it('that the module decides, instead of failing over it', () => {
    class Orders {
      @IdempotentBy(header('Idempotency-Key'))
      async run(): Promise<void> {}
    }
    const [policy] = describePolicies(Orders, 'run').policies;
    expect(policy?.options['scope']).toHaveProperty('name', 'scopeOfTheModule');
  });
});

/** The policy in effect, `undefined` when there is none. */
function policyOf(target: Parameters<typeof describePolicies>[0]) {
  const { policies } = describePolicies(target, 'run');
  const found = policies.find(({ policy }) => policy === 'idempotency');
  return found && { key: found.key, ttl: found.options['ttl'], lease: found.options['lease'] };
}

abstract class Task {
  @LockWith(arg(0))
  @IdempotentBy(arg(0), { ttl: 600 })
  async run(_id: string): Promise<string> {
    return 'base';
  }
}

class BareOverride extends Task {
  override async run(id: string): Promise<string> {
    return id;
  }
}

class Inheriting extends Task {
  @IdempotentBy()
  override async run(_id: string): Promise<string> {
    return 'inheriting';
  }
}

class NewKey extends Task {
  @IdempotentBy('one for all')
  override async run(_id: string): Promise<string> {
    return 'new key';
  }
}

class NewOption extends Task {
  @IdempotentBy({ lease: 5 })
  override async run(_id: string): Promise<string> {
    return 'new option';
  }
}

class Off extends Task {
  @IdempotentBy(false)
  override async run(_id: string): Promise<string> {
    return 'off';
  }
}

@IdempotentBy(false)
class OffOnClass extends Task {}

class OnAgain extends Off {
  @IdempotentBy({ lease: 7 })
  override async run(_id: string): Promise<string> {
    return 'on again';
  }
}

describe('What is in effect on a subclass?', () => {
  it.each([
    ['an override without a decorator', BareOverride, { key: 'arg(0)', ttl: 600, lease: 60 }],
    ['() inherits', Inheriting, { key: 'arg(0)', ttl: 600, lease: 60 }],
    ['a new key replaces, options stay', NewKey, { key: '"one for all"', ttl: 600, lease: 60 }],
    ['options alone, the key stays', NewOption, { key: 'arg(0)', ttl: 600, lease: 5 }],
    ['(false) on the method', Off, undefined],
    ['(false) on the class', OffOnClass, undefined],
    ['a later option turns on again', OnAgain, { key: 'arg(0)', ttl: 600, lease: 7 }],
  ])('%s', (_, target, expected) => {
    expect(policyOf(target)).toEqual(expected);
    expect(describePolicies(target, 'run').policies.map(({ policy }) => policy)).toContain('lock');
  });

  it('the parent is what it was', () => {
    expect(policyOf(Task)).toEqual({ key: 'arg(0)', ttl: 600, lease: 60 });
  });

  it('(false) really runs each time; the others once', async () => {
    @Injectable()
    class Counting extends Off {
      runs = 0;

      override async run(id: string): Promise<string> {
        this.runs += 1;
        return super.run(id);
      }
    }
    @Injectable()
    class CountingOn extends NewOption {
      runs = 0;

      override async run(id: string): Promise<string> {
        this.runs += 1;
        return super.run(id);
      }
    }
    const { get } = await boot({ providers: [Counting, CountingOn] });
    for (const target of [Counting, CountingOn]) {
      await get(target).run('1');
      await get(target).run('1');
    }
    expect([get(Counting).runs, get(CountingOn).runs]).toEqual([2, 1]);
  });
});

describe('What does a decorator on a class reach?', () => {
  it('its handlers, and the methods that carry the decorator themselves', () => {
    @IdempotentBy(input('id'), { ttl: 60 })
    @Controller('orders')
    class Orders {
      @Post('a/:id')
      async handler(@Param('id') _id: string): Promise<void> {}

      @IdempotentBy({ ttl: 5 })
      @Post('b/:id')
      async brief(@Param('id') _id: string): Promise<void> {}

      @IdempotentBy(false)
      @Post('c/:id')
      async free(@Param('id') _id: string): Promise<void> {}

      @IdempotentBy()
      async method(_order: { id: string }): Promise<void> {}

      async plain(_id: string): Promise<void> {}
    }
    const ttl = (method: string) =>
      describePolicies(Orders, method).policies.map(({ key, options }) => [key, options['ttl']]);
    expect(ttl('handler')).toEqual([["input('id')", 60]]);
    expect(ttl('brief')).toEqual([["input('id')", 5]]);
    expect(ttl('free')).toEqual([]);
    expect(ttl('method')).toEqual([["input('id')", 60]]);
    expect(definitionMessage(() => describePolicies(Orders, 'plain'))).toContain(
      'expected a guarded method, got Orders.plain',
    );
  });

  it('a service none of whose methods it reaches is refused', async () => {
    @IdempotentBy(arg(0))
    @Injectable()
    class Orders {
      async ship(_id: string): Promise<void> {}
    }
    expect(await bootMessage(boot({ providers: [Orders] }))).toBe(
      'Orders: @IdempotentBy on the class reaches none of its methods: it has no Nest handler, and no method carries @IdempotentBy() itself',
    );
  });
});

describe('What does describePolicies tell of it?', () => {
  const scope = fromRequest(() => 'ada');
  const fingerprint = (order: object): unknown => order;

  @Controller('orders')
  class Described {
    @RateLimit(arg(0), { max: 5, per: 60 })
    @LockWith(arg(0))
    @IdempotentBy(arg(0))
    async plain(_id: string): Promise<void> {}

    @LockWith(arg(0))
    @IdempotentBy(async (id: string) => id)
    async asyncKey(_id: string): Promise<void> {}

    @LockWith(arg(0))
    @IdempotentBy(arg(0), { scope: async () => 'later' })
    async asyncScope(_id: string): Promise<void> {}

    @LockWith(arg(0))
    @IdempotentBy(arg(0), { fingerprint: async (id: string) => id })
    async asyncFingerprint(_id: string): Promise<void> {}

    @IdempotentBy(header('Idempotency-Key'), { scope })
    @Post()
    async handler(): Promise<void> {}

    @IdempotentBy(header('Idempotency-Key'), { scope: 'shared', fingerprint: false })
    @Post('shared')
    async shared(): Promise<void> {}

    @IdempotentBy(input('id'), { fingerprint, name: 'order', namespace: 'app' })
    async compared(_order: { id: string }): Promise<void> {}
  }

  it('the key, where its records lie, and every option in effect', () => {
    expect(describePolicies(Described, 'plain').policies.at(-1)).toEqual({
      policy: 'idempotency',
      key: 'arg(0)',
      keyBase: 'cmdx:idem:Described.plain',
      options: {
        ttl: '24h',
        lease: 60,
        wait: 30,
        namespace: 'cmdx:idem',
        onDuplicate: 'replay',
        onInProgress: 'fail',
        onAbandoned: 'fail',
        maxBytes: 65_536,
        onBlank: 'bypass',
        onStoreError: 'fail',
        fingerprint: false,
      },
    });
  });

  it('whose the key is, and by what payloads are compared', () => {
    const [handler] = describePolicies(Described, 'handler').policies;
    expect(handler).toMatchObject({
      key: "fromRequest(...) : header('Idempotency-Key')",
      options: { fingerprint: 'request' },
    });
    expect(handler?.options['scope']).toBe(scope);
    expect(describePolicies(Described, 'shared').policies[0]).toMatchObject({
      key: "header('Idempotency-Key')",
      options: { scope: 'shared', fingerprint: false },
    });
    const [compared] = describePolicies(Described, 'compared').policies;
    expect(compared?.keyBase).toBe('app:order');
    expect(compared?.options['fingerprint']).toBe(fingerprint);
  });

  it('which trips to the store it shares', () => {
    const batches = (method: string) => describePolicies(Described, method).batches;
    expect(batches('plain')).toEqual([['rateLimit', 'lock', 'idempotency']]);
    for (const method of ['asyncKey', 'asyncScope', 'asyncFingerprint']) {
      expect([method, batches(method)]).toEqual([method, [['lock'], ['idempotency']]]);
    }
  });

  it('frozen, all the way down', () => {
    const description = describePolicies(Described, 'plain');
    const idempotency = description.policies.at(-1);
    const parts = [description, description.policies, idempotency, idempotency?.options];
    for (const part of [...parts, description.batches, description.batches[0]]) {
      expect(part).toBeDefined();
      expect(Object.isFrozen(part)).toBe(true);
    }
  });
});
