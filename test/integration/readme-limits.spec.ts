import { AsyncResource } from 'node:async_hooks';
import { describe, expect, it } from '@jest/globals';
import { type CanActivate, Controller, Get, Injectable, Scope, UseGuards } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { clientIp, CmdxModule, LockWith, RateLimit } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../support/application.js';
import { closeAppsAfterEach, startHttp } from '../support/http-app.js';

type Method = (this: unknown, ...args: unknown[]) => Promise<unknown>;

/** A decorator of somebody else that replaces the method. */
function Around(wrap: (method: Method) => Method): MethodDecorator {
  return (_target, _name, descriptor) => {
    const replaced = descriptor as unknown as { value: Method };
    replaced.value = wrap(replaced.value);
  };
}

describe('is what README.md calls impossible really so', () => {
  closeApplicationsAfterEach();
  closeAppsAfterEach();

  it('for a call from a constructor?', async () => {
    @Injectable()
    class Early {
      readonly first: Promise<unknown> = this.run().catch((error: Error) => error.name);

      @LockWith('early')
      async run(): Promise<string> {
        return 'ran';
      }
    }
    const app = await boot({ providers: [Early] });
    expect(await app.get(Early).first).toBe('NotManagedError');
    expect(await app.get(Early).run()).toBe('ran');
  });

  it('for a method bound in the constructor below a foreign decorator?', async () => {
    const order: string[] = [];
    const Transactional = () =>
      Around(
        (method) =>
          async function (this: unknown, ...args) {
            const value = await method.apply(this, args);
            order.push('commit');
            return value;
          },
      );
    @Injectable()
    class Bound {
      constructor() {
        this.run = this.run.bind(this);
      }

      @Transactional()
      @LockWith('bound')
      async run(): Promise<void> {}
    }
    @Injectable()
    class Usual {
      @Transactional()
      @LockWith('usual')
      async run(): Promise<void> {}
    }
    const app = await boot(
      { providers: [Bound, Usual] },
      {
        telemetry: [
          {
            listen: (telemetry) =>
              telemetry.subscribe('task_executed', () => void order.push('release')),
          },
        ],
      },
    );
    await app.get(Bound).run();
    expect(order.splice(0)).toEqual(['release', 'commit']);
    await app.get(Usual).run();
    expect(order).toEqual(['commit', 'release']);
  });

  it('for a static method and an accessor?', () => {
    const decorate = (descriptor: PropertyDescriptor, target: object) => () =>
      (LockWith('x') as unknown as MethodDecorator)(target, 'run', descriptor);
    class Plain {}
    expect(decorate({ value: async () => undefined }, Plain)).toThrow(/got a static method/);
    expect(decorate({ get: () => undefined }, Plain.prototype)).toThrow(/got an accessor/);
  });

  it('for an accessor above ours?', async () => {
    const Autobind = (): MethodDecorator => (_target, _name, descriptor) => {
      const { value, configurable = true, enumerable = false } = descriptor;
      return { configurable, enumerable, get: () => value as never };
    };
    @Injectable()
    class Service {
      @Autobind()
      @LockWith('x')
      async run(): Promise<void> {}
    }
    await expect(boot({ providers: [Service] })).rejects.toThrow(/got an accessor.*below ours/);
  });

  it('for a foreign wrapper that loses the async context?', async () => {
    const outside = new AsyncResource('foreign queue');
    const Queued = () =>
      Around(
        (method) =>
          function (this: unknown, ...args) {
            return outside.runInAsyncScope(() => method.apply(this, args));
          },
      );
    @Injectable()
    class Service {
      @Queued()
      @LockWith('x')
      async run(): Promise<void> {}
    }
    const app = await boot({ providers: [Service] });
    await expect(app.get(Service).run()).rejects.toMatchObject({ code: 'busy' });
  });

  it("for a wrapper above @Get that drops Nest's metadata?", async () => {
    const Naive = () =>
      Around(
        (method) =>
          function (this: unknown, ...args) {
            return method.apply(this, args);
          },
      );
    @Controller()
    class Routes {
      @Naive()
      @Get('guarded')
      @LockWith('x')
      async guarded(): Promise<void> {}

      @Naive()
      @Get('bare')
      async bare(): Promise<void> {}
    }
    const http = await startHttp('express', { controllers: [Routes] });
    expect((await http.get('/guarded')).status).toBe(404);
    expect((await http.get('/bare')).status).toBe(404);
  });

  it('for a request-scoped instance that a factory makes?', async () => {
    class Service {
      @LockWith('x')
      async run(): Promise<void> {}
    }
    const module = await Test.createTestingModule({
      imports: [CmdxModule.forRoot()],
      providers: [{ provide: 'service', scope: Scope.REQUEST, useFactory: () => new Service() }],
    }).compile();
    const service = await module.resolve<Service>('service');
    await expect(service.run()).rejects.toMatchObject({ name: 'NotManagedError' });
    await module.close();
  });

  it('for keys that are not yet wanted?', async () => {
    const called: string[] = [];
    const key = (name: string) => {
      called.push(name);
      return name;
    };
    @Injectable()
    class Service {
      @RateLimit({ max: 0, per: 1 })
      @LockWith(() => key('synchronous'))
      async synchronous(): Promise<void> {}

      @RateLimit({ max: 0, per: 1 })
      @LockWith(() => Promise.resolve(key('plain promise')))
      async plain(): Promise<void> {}

      @RateLimit({ max: 0, per: 1 })
      @LockWith(async () => key('async'))
      async asynchronous(): Promise<void> {}
    }
    const app = await boot({ providers: [Service] });
    const service = app.get(Service);
    for (const name of ['synchronous', 'plain', 'asynchronous'] as const) {
      await expect(service[name]()).rejects.toMatchObject({ code: 'rate_limited' });
    }
    expect(called).toEqual(['synchronous', 'plain promise']);
  });

  it('for keys of the request inside a guard?', async () => {
    @Injectable()
    class Passwords {
      @RateLimit(clientIp(), { max: 0, per: 1 })
      async check(): Promise<boolean> {
        return true;
      }
    }
    @Injectable()
    class PasswordGuard implements CanActivate {
      constructor(private readonly passwords: Passwords) {}

      canActivate(): Promise<boolean> {
        return this.passwords.check();
      }
    }
    @Controller()
    class Routes {
      constructor(private readonly passwords: Passwords) {}

      @Get('behind')
      @UseGuards(PasswordGuard)
      behind(): string {
        return 'in';
      }

      @Get('handler')
      handler(): Promise<boolean> {
        return this.passwords.check();
      }
    }
    const http = await startHttp('express', { controllers: [Routes], providers: [Passwords] });
    expect((await http.get('/behind')).status).toBe(200);
    expect((await http.get('/handler')).status).toBe(429);
  });
});
