import { describe, expect, it } from '@jest/globals';
import { Controller, Get, Injectable } from '@nestjs/common';
import {
  arg,
  CircuitBreaker,
  CircuitBreakers,
  currentInvocation,
  describePolicies,
  InvalidKeyError,
  perTask,
} from 'nestjs-cmdx';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { endOf } from '../../support/ends.js';

closeApplicationsAfterEach();

/** One failure opens it. */
const BREAKER = { minimumCalls: 1 } as const;

function sick(): never {
  throw new Error('sick');
}

/** A decorator as a list of its arguments writes it. */
type Loose = (...written: readonly unknown[]) => MethodDecorator;

/** The keys under which a breaker is open. */
async function openKeys(application: Application, ...keys: string[]): Promise<string[]> {
  const breakers = application.module.get(CircuitBreakers);
  const open: string[] = [];
  for (const key of keys) if ((await breakers.inspect(key))?.state === 'open') open.push(key);
  return open;
}

describe('which methods share a breaker?', () => {
  @Injectable()
  class Orders {
    @CircuitBreaker('payments-api', BREAKER)
    async pay(): Promise<void> {
      sick();
    }

    @CircuitBreaker({ ...BREAKER, name: 'payments-api' })
    async refund(): Promise<string> {
      return 'refunded';
    }

    @CircuitBreaker(BREAKER)
    async ship(): Promise<string> {
      return 'shipped';
    }
  }
  @Injectable()
  class Invoices {
    @CircuitBreaker('payments-api', BREAKER)
    async settle(): Promise<string> {
      return 'settled';
    }
  }

  it('those of one literal key or name, of any class; nobody else', async () => {
    const app = await boot({ providers: [Orders, Invoices] });
    await endOf(app.get(Orders).pay());
    expect(await endOf(app.get(Orders).refund())).toBe('circuit_open');
    expect(await endOf(app.get(Invoices).settle())).toBe('circuit_open');
    expect(await app.get(Orders).ship()).toBe('shipped');
    expect(await openKeys(app, 'cmdx:cb:payments-api', 'cmdx:cb:Orders.pay')).toEqual([
      'cmdx:cb:payments-api',
    ]);
  });

  it('those of one namespace only', async () => {
    @Injectable()
    class Elsewhere {
      @CircuitBreaker('payments-api', { ...BREAKER, namespace: 'other' })
      async pay(): Promise<string> {
        return 'paid';
      }
    }
    const app = await boot({ providers: [Orders, Elsewhere] });
    await endOf(app.get(Orders).pay());
    expect(await app.get(Elsewhere).pay()).toBe('paid');
    expect(await openKeys(app, 'cmdx:cb:payments-api', 'other:payments-api')).toHaveLength(1);
  });
});

describe('whose breaker is it, by key?', () => {
  @Injectable()
  class Tenants {
    asked: unknown[] = [];
    enabled = true;

    @CircuitBreaker((tenant: string | null) => tenant, BREAKER)
    async call(_tenant: string | null, body: () => unknown): Promise<unknown> {
      return body();
    }

    @CircuitBreaker(arg(0), { ...BREAKER, name: 'gateway' })
    async named(_tenant: string, body: () => unknown): Promise<unknown> {
      return body();
    }

    @CircuitBreaker(async (tenant: string) => tenant, BREAKER)
    async later(_tenant: string, body: () => unknown): Promise<unknown> {
      return body();
    }

    @CircuitBreaker(perTask, BREAKER)
    async together(_tenant: string, body: () => unknown): Promise<unknown> {
      return body();
    }

    @CircuitBreaker((tenant: string | null) => tenant, { ...BREAKER, onBlank: 'fail' })
    async strict(_tenant: string | null, body: () => unknown): Promise<unknown> {
      return body();
    }

    @CircuitBreaker({ ...BREAKER, name: 'gated', if: 'isOn', unless: (tenant) => tenant === 'vip' })
    async gated(_tenant: string, body: () => unknown): Promise<unknown> {
      return body();
    }

    isOn(tenant: string): boolean {
      this.asked.push([tenant, currentInvocation()?.task]);
      return this.enabled;
    }
  }

  const well = (): string => 'well';

  it.each([
    ['call', 'cmdx:cb:Tenants.call:acme'],
    ['named', 'cmdx:cb:gateway:acme'],
    ['later', 'cmdx:cb:Tenants.later:acme'],
  ] as const)('each tenant has one of its own (%s)', async (method, key) => {
    const app = await boot({ providers: [Tenants] });
    const tenants = app.get(Tenants);
    await endOf(tenants[method]('acme', sick));
    expect(await endOf(tenants[method]('acme', well))).toBe('circuit_open');
    expect(await tenants[method]('globex', well)).toBe('well');
    expect(await openKeys(app, key)).toEqual([key]);
  });

  it('one that never opened is forgotten after its window, one that did is not', async () => {
    const { get, store, clock } = await boot({ providers: [Tenants] });
    await get(Tenants).call('a-guess', well);
    await endOf(get(Tenants).call('acme', sick));
    await clock.advance('59s');
    expect(await store.get('cmdx:cb:Tenants.call:a-guess')).toBeDefined();
    await clock.advance('1s');
    expect(await store.get('cmdx:cb:Tenants.call:a-guess')).toBeUndefined();
    expect(await get(Tenants).call('acme', well)).toBe('well');
    await clock.advance('10m');
    expect(await store.get('cmdx:cb:Tenants.call:acme')).toBeDefined();
  });

  it('perTask: all have one', async () => {
    const app = await boot({ providers: [Tenants] });
    await endOf(app.get(Tenants).together('acme', sick));
    expect(await endOf(app.get(Tenants).together('globex', well))).toBe('circuit_open');
  });

  it.each([null, ''])(
    'a blank key (%j) has none: calls pass, and are not counted',
    async (blank) => {
      const app = await boot({ providers: [Tenants] });
      for (let call = 0; call < 3; call++) {
        expect(await endOf(app.get(Tenants).call(blank, sick))).toBe('sick');
      }
      expect(app.telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual(
        Array.from({ length: 3 }, () => ({ policy: 'circuitBreaker', reason: 'blank' })),
      );
      expect(app.telemetry.of('circuit_opened')).toEqual([]);
    },
  );

  it('a blank key is refused where it has to be there, and so is one of the wrong kind', async () => {
    const { get } = await boot({ providers: [Tenants] });
    expect(await endOf(get(Tenants).strict(null, well))).toBe('key_missing');
    await expect(get(Tenants).call({} as never, well)).rejects.toBeInstanceOf(InvalidKeyError);
  });

  it('a gate decides with the method’s arguments; whom it lets off is neither refused nor counted', async () => {
    const { get, telemetry } = await boot({ providers: [Tenants] });
    const tenants = get(Tenants);
    expect(await endOf(tenants.gated('vip', sick))).toBe('sick');
    expect(await endOf(tenants.gated('acme', sick))).toBe('sick');
    expect(telemetry.of('circuit_opened')).toHaveLength(1);
    expect(await tenants.gated('vip', well)).toBe('well');
    expect(await endOf(tenants.gated('acme', well))).toBe('circuit_open');
    tenants.enabled = false;
    expect(await tenants.gated('acme', well)).toBe('well');
    expect(tenants.asked.at(-1)).toEqual(['acme', 'Tenants.gated']);
  });
});

describe('what does a subclass inherit?', () => {
  @Injectable()
  class Base {
    @CircuitBreaker({ ...BREAKER, openFor: 5 })
    async call(body: () => unknown): Promise<unknown> {
      return body();
    }
  }
  @Injectable()
  class AsItIs extends Base {}
  @Injectable()
  class Longer extends Base {
    @CircuitBreaker({ openFor: 50 })
    override async call(body: () => unknown): Promise<unknown> {
      return super.call(body);
    }
  }
  @Injectable()
  class Shared extends Base {
    @CircuitBreaker('shared')
    override async call(body: () => unknown): Promise<unknown> {
      return super.call(body);
    }
  }
  @Injectable()
  class Off extends Base {
    @CircuitBreaker(false)
    override async call(body: () => unknown): Promise<unknown> {
      return super.call(body);
    }
  }
  @Injectable()
  class StaysOff extends Off {
    @CircuitBreaker()
    override async call(body: () => unknown): Promise<unknown> {
      return super.call(body);
    }
  }
  @Injectable()
  class OnAgain extends StaysOff {
    @CircuitBreaker({ openFor: 1 })
    override async call(body: () => unknown): Promise<unknown> {
      return super.call(body);
    }
  }

  it('its breaker, under the name of the subclass: it has one of its own', async () => {
    const app = await boot({ providers: [Base, AsItIs] });
    await endOf(app.get(AsItIs).call(sick));
    expect(await app.get(Base).call(() => 'well')).toBe('well');
    expect(await openKeys(app, 'cmdx:cb:AsItIs.call')).toHaveLength(1);
  });

  it('its options, one by one, and one call is counted once, also through super', async () => {
    const app = await boot({ providers: [Longer] });
    await endOf(app.get(Longer).call(sick));
    await expect(app.get(Longer).call(sick)).rejects.toMatchObject({ retryAfter: 50 });
    expect(app.telemetry.of('circuit_opened')).toHaveLength(1);
  });

  it('nothing where it says false, until an option turns it on again', async () => {
    const app = await boot({ providers: [Off, StaysOff, OnAgain] });
    for (const Service of [Off, StaysOff]) {
      for (let call = 0; call < 2; call++) {
        expect(await endOf(app.get(Service).call(sick))).toBe('sick');
      }
    }
    await endOf(app.get(OnAgain).call(sick));
    expect(await endOf(app.get(OnAgain).call(sick))).toBe('circuit_open');
  });

  it('describePolicies says so', () => {
    const [own] = describePolicies(Longer, 'call').policies;
    expect(own).toMatchObject({
      policy: 'circuitBreaker',
      key: 'perTask',
      keyBase: 'cmdx:cb:Longer.call',
      options: {
        failureRate: 0.5,
        minimumCalls: 1,
        window: 60,
        openFor: 50,
        maxOpenFor: 600,
        permits: 1,
        probeTimeout: 60,
        onOpen: 'fail',
        onBlank: 'bypass',
        onStoreError: 'fail',
      },
    });
    expect(Object.isFrozen(own?.options)).toBe(true);
    expect(describePolicies(Shared, 'call').policies).toMatchObject([
      { key: '"shared"', keyBase: 'cmdx:cb:shared', options: { name: 'shared', openFor: 5 } },
    ]);
    expect(describePolicies(Off, 'call').policies).toEqual([]);
    expect(describePolicies(Base, 'call').batches).toEqual([['circuitBreaker']]);
  });
});

describe('which name is it, where a subclass writes another?', () => {
  class Literal {
    @CircuitBreaker('base')
    async call(_tenant: string): Promise<void> {}
  }
  class Named {
    @CircuitBreaker(arg(0), { name: 'base' })
    async call(_tenant: string): Promise<void> {}
  }

  it.each([
    ['a literal key over a literal key', Literal, ['own'], '"own"', 'own'],
    ['a name over a literal key', Literal, [{ name: 'own' }], '"own"', 'own'],
    ['a key and a name over a literal key', Literal, [arg(0), { name: 'own' }], 'arg(0)', 'own'],
    ['both, the same, over a literal key', Literal, ['own', { name: 'own' }], '"own"', 'own'],
    ['other options over a literal key', Literal, [{ permits: 2 }], '"base"', 'base'],
    ['a key over a literal key', Literal, [arg(0)], 'arg(0)', 'Sub.call'],
    ['a literal key over a name', Named, ['own'], '"own"', 'own'],
    ['a name over a name', Named, [{ name: 'own' }], 'arg(0)', 'own'],
    ['a key over a name', Named, [perTask], 'perTask', 'base'],
  ] as const)('%s: what was written last', async (_what, Base, written, key, base) => {
    @Injectable()
    class Sub extends (Base as typeof Literal) {
      @((CircuitBreaker as Loose)(...written))
      override async call(_tenant: string): Promise<void> {}
    }
    await boot({ providers: [Sub] });
    const [breaker] = describePolicies(Sub, 'call').policies;
    expect(breaker).toMatchObject({ key, keyBase: `cmdx:cb:${base}` });
  });

  it('the first one, again, where a subclass of that one writes it', async () => {
    class Other extends Literal {
      @CircuitBreaker({ name: 'other' })
      override async call(_tenant: string): Promise<void> {}
    }
    @Injectable()
    class Again extends Other {
      @CircuitBreaker('base')
      override async call(_tenant: string): Promise<void> {}
    }
    await boot({ providers: [Again] });
    expect(describePolicies(Again, 'call').policies).toMatchObject([{ keyBase: 'cmdx:cb:base' }]);
  });

  it('neither, where two are written in one place, also if a subclass writes a third', async () => {
    class Torn {
      @CircuitBreaker('one', { name: 'other' })
      async call(_tenant: string): Promise<void> {}
    }
    @Injectable()
    class Mended extends Torn {
      @CircuitBreaker('third')
      override async call(_tenant: string): Promise<void> {}
    }
    for (const Service of [Torn, Mended]) {
      expect(() => describePolicies(Service, 'call')).toThrow(
        `${Service.name}.call: @CircuitBreaker: expected one shared name, got "one" and the option "name", "other"`,
      );
    }
  });
});

describe('on a class', () => {
  @Controller('upstream')
  @CircuitBreaker('upstream', { ...BREAKER, openFor: 5 })
  class Upstream {
    @Get('first')
    first(): string {
      return 'first';
    }

    @Get('second')
    @CircuitBreaker(false)
    async second(): Promise<string> {
      return 'second';
    }

    async helper(): Promise<string> {
      return 'helper';
    }
  }

  it('it guards every handler that does not say otherwise, and no other method', () => {
    expect(describePolicies(Upstream, 'first').policies).toMatchObject([
      { key: '"upstream"', keyBase: 'cmdx:cb:upstream', options: { openFor: 5 } },
    ]);
    expect(describePolicies(Upstream, 'second').policies).toEqual([]);
    expect(() => describePolicies(Upstream, 'helper')).toThrow('expected a guarded method');
  });

  it('its handlers share the breaker, and are refused by it', async () => {
    const app = await boot({ controllers: [Upstream] });
    await app.module.get(CircuitBreakers).forceOpen('cmdx:cb:upstream');
    const upstream = app.get(Upstream);
    expect(await endOf(upstream.first() as unknown as Promise<string>)).toBe('circuit_open');
    expect(await upstream.second()).toBe('second');
    expect(await upstream.helper()).toBe('helper');
  });
});
