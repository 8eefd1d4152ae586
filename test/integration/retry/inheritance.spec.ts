import { describe, expect, it } from '@jest/globals';
import { Controller, Get, Injectable } from '@nestjs/common';
import { type CmdxModuleOptions, describePolicies, RetryOn, SystemClock } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';

closeApplicationsAfterEach();

class Flaky extends Error {}
class Late extends Error {}
class Other extends Error {}

class Base {
  readonly runs: string[] = [];

  @RetryOn(Flaky, { delay: 0, limit: 2 })
  async call(error: unknown): Promise<void> {
    this.runs.push('call');
    throw error;
  }
}

@Injectable()
class Plain extends Base {}

@Injectable()
class AddsErrors extends Base {
  @RetryOn([Late])
  override async call(error: unknown): Promise<void> {
    return super.call(error);
  }
}

@Injectable()
class ChangesOption extends Base {
  @RetryOn({ limit: 1 })
  override async call(error: unknown): Promise<void> {
    return super.call(error);
  }
}

@Injectable()
class AddsBoth extends Base {
  @RetryOn((error) => error === 'again', { limit: 3, delay: 0 })
  override async call(error: unknown): Promise<void> {
    return super.call(error);
  }
}

@Injectable()
class Inherits extends Base {
  @RetryOn()
  override async call(error: unknown): Promise<void> {
    return super.call(error);
  }
}

@Injectable()
class Off extends Base {
  @RetryOn(false)
  override async call(error: unknown): Promise<void> {
    return super.call(error);
  }
}

@Injectable()
class OnAgain extends Off {
  @RetryOn({ limit: 1 })
  override async call(error: unknown): Promise<void> {
    return super.call(error);
  }
}

@Injectable()
class Undecorated extends Base {
  override async call(error: unknown): Promise<void> {
    return super.call(error);
  }
}

describe('what does a subclass make of its base’s retry?', () => {
  it.each([
    ['nothing, without an override', Plain, new Flaky(), 3],
    ['nothing, with one that is not decorated', Undecorated, new Flaky(), 3],
    ['nothing, with ()', Inherits, new Flaky(), 3],
    ['more errors: its own', AddsErrors, new Late(), 3],
    ['more errors: the base’s still count', AddsErrors, new Flaky(), 3],
    ['more errors: no others', AddsErrors, new Other(), 1],
    ['another limit, same errors', ChangesOption, new Flaky(), 2],
    ['both', AddsBoth, 'again', 4],
    ['both: the base’s errors', AddsBoth, new Flaky(), 4],
    ['an end, with false', Off, new Flaky(), 1],
    ['a new start, with an option after that', OnAgain, new Flaky(), 2],
  ])('%s', async (_what, Sub, error, runs) => {
    const { get } = await boot({ providers: [Sub] }, { clock: new SystemClock() });
    await expect(get(Sub).call(error)).rejects.toBe(error);
    expect(get(Sub).runs).toHaveLength(runs);
  });

  it('never of the base itself', async () => {
    const { get } = await boot({ providers: [AddsBoth, Plain] }, { clock: new SystemClock() });
    await expect(get(Plain).call('again')).rejects.toBe('again');
    expect(get(Plain).runs).toHaveLength(1);
  });

  it('describePolicies says it', () => {
    const retryOf = (target: abstract new () => Base) => describePolicies(target, 'call').retry;
    expect(retryOf(Plain)).toEqual({ limit: 2, delay: 0 });
    expect(retryOf(ChangesOption)).toEqual({ limit: 1, delay: 0 });
    expect(retryOf(AddsBoth)).toEqual({ limit: 3, delay: 0 });
    expect(retryOf(Off)).toBeUndefined();
    expect(Object.isFrozen(retryOf(Plain))).toBe(true);
  });
});

describe('what does a retry on a class mean?', () => {
  @Injectable()
  @RetryOn(Flaky, { delay: 0, limit: 2 })
  class Service {
    runs = 0;

    @RetryOn()
    async guarded(): Promise<void> {
      this.runs += 1;
      throw new Flaky();
    }

    @RetryOn([Late], { limit: 1 })
    async refined(error: unknown): Promise<void> {
      this.runs += 1;
      throw error;
    }

    async bare(): Promise<void> {
      this.runs += 1;
      throw new Flaky();
    }
  }

  it.each<[string, (service: Service) => Promise<void>, number]>([
    ['the default of a method that carries it', (service) => service.guarded(), 3],
    ['with the method’s own errors and options', (service) => service.refined(new Late()), 2],
    ['and those of the class', (service) => service.refined(new Flaky()), 2],
    ['nothing for others', (service) => service.bare(), 1],
  ])('%s', async (_what, call, runs) => {
    const { get } = await boot({ providers: [Service] }, { clock: new SystemClock() });
    await expect(call(get(Service))).rejects.toThrow();
    expect(get(Service).runs).toBe(runs);
  });

  it('a retry of every Nest handler, except where it is turned off', () => {
    @Controller()
    @RetryOn(Flaky)
    class Routes {
      @Get('on')
      on(): string {
        return 'a sync handler becomes async';
      }

      @Get('off')
      @RetryOn(false)
      async off(): Promise<void> {}
    }
    expect(describePolicies(Routes, 'on').retry).toEqual({ limit: 3, delay: 0.5 });
    expect(describePolicies(Routes, 'off').retry).toBeUndefined();
  });
});

describe('what do the defaults of the module fill in?', () => {
  const defaults: CmdxModuleOptions['defaults'] = { retry: { limit: 5, delay: 0 } };

  it('options that nobody has written, and never a retry', async () => {
    @Injectable()
    class Service extends Base {
      @RetryOn(Flaky)
      async open(): Promise<void> {
        this.runs.push('open');
        throw new Flaky();
      }

      async bare(): Promise<void> {
        this.runs.push('bare');
        throw new Flaky();
      }
    }
    const { get } = await boot({ providers: [Service] }, { clock: new SystemClock(), defaults });
    const service = get(Service);
    await Promise.allSettled([service.open(), service.bare(), service.call(new Flaky())]);
    const count = (name: string): number => service.runs.filter((run) => run === name).length;
    expect([count('open'), count('bare'), count('call')]).toEqual([6, 1, 3]);
  });
});
