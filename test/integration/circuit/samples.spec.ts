import { describe, expect, it } from '@jest/globals';
import {
  BadRequestException,
  HttpException,
  Injectable,
  InternalServerErrorException,
  NotFoundException,
} from '@nestjs/common';
import {
  arg,
  CircuitBreaker,
  type CircuitBreakerOptions,
  CircuitBreakers,
  Deadline,
  fail,
  IdempotentBy,
  LockWith,
  OutputSchema,
  RateLimit,
  type Store,
  skip,
} from 'nestjs-cmdx';
import * as z from 'zod';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { DEAD_OWNER, leaveClaimOfTheDead } from '../../support/dead-owner.js';
import { endOf } from '../../support/ends.js';

closeApplicationsAfterEach();

const KEY = 'cmdx:cb:bank';
/** One failure opens it. */
const BREAKER = { minimumCalls: 1, openFor: 10 } as const;
const SICK = new Error('The bank is sick.');
const MINUTE_MS = 60_000;

class Rejected extends Error {}
class Declined extends Rejected {}

@Injectable()
class Bank {
  runs = 0;

  @CircuitBreaker('bank', BREAKER)
  async call(body: () => unknown = () => 'well'): Promise<unknown> {
    this.runs += 1;
    return body();
  }

  @CircuitBreaker('bank', BREAKER)
  @LockWith(arg(0))
  async locked(_account: string): Promise<void> {
    this.runs += 1;
  }

  @CircuitBreaker('bank', BREAKER)
  @IdempotentBy(arg(0), { onDuplicate: 'fail', fingerprint: (_id: string, what: string) => what })
  async once(_id: string, _what = 'pay'): Promise<void> {
    this.runs += 1;
  }

  @CircuitBreaker('bank', BREAKER)
  @OutputSchema(z.string())
  async checked(): Promise<string> {
    this.runs += 1;
    return 5 as never;
  }

  @RateLimit({ max: 0, per: '1m' })
  async limited(): Promise<void> {}
}

function failing(error: unknown): () => never {
  return () => {
    throw error;
  };
}

function abortError(): Error {
  return new DOMException('The caller has left.', 'AbortError');
}

const IDEM = 'cmdx:idem:Bank.once:1';

async function finish(store: Store): Promise<void> {
  const claim = { key: IDEM, token: DEAD_OWNER, ttlMs: MINUTE_MS } as const;
  await store.enter(
    [{ ...claim, kind: 'claim', leaseMs: MINUTE_MS, onAbandoned: 'fail' }],
    Deadline.after(MINUTE_MS),
  );
  await store.leave([{ ...claim, kind: 'complete', run: 1 }]);
}

async function hold(store: Store): Promise<void> {
  const key = 'cmdx:lock:Bank.locked:1';
  await store.enter(
    [{ kind: 'lease', key, token: 'other', ttlMs: MINUTE_MS }],
    Deadline.after(MINUTE_MS),
  );
}

/** The calls that say nothing about the bank: how they are made, and how they end. */
const IGNORED: readonly {
  readonly what: string;
  readonly prepare?: (store: Store) => Promise<unknown>;
  readonly call: (bank: Bank) => Promise<unknown>;
  readonly end: unknown;
}[] = [
  { what: 'a busy lock', prepare: hold, call: (bank) => bank.locked('1'), end: 'busy' },
  { what: 'a duplicate', prepare: finish, call: (bank) => bank.once('1'), end: 'duplicate' },
  {
    what: 'a call in progress',
    prepare: (store) => leaveClaimOfTheDead(store, IDEM),
    call: (bank) => bank.once('1'),
    end: 'in_progress',
  },
  {
    what: 'another payload',
    prepare: async (store) => {
      const claim = { kind: 'claim', key: IDEM, token: DEAD_OWNER, fingerprint: 'other' } as const;
      const times = { leaseMs: MINUTE_MS, ttlMs: MINUTE_MS, onAbandoned: 'fail' } as const;
      await store.enter([{ ...claim, ...times }], Deadline.after(MINUTE_MS));
    },
    call: (bank) => bank.once('1', 'refund'),
    end: 'payload_mismatch',
  },
  {
    what: 'an HttpException of 400',
    call: (bank) => bank.call(failing(new BadRequestException('amount'))),
    end: 'amount',
  },
  {
    what: 'an HttpException of 499',
    call: (bank) => bank.call(failing(new HttpException('left', 499))),
    end: 'left',
  },
  { what: 'skip()', call: (bank) => bank.call(() => skip('closed today')), end: undefined },
  {
    what: 'fail()',
    call: (bank) => bank.call(() => fail('no funds', { code: 'no_funds' })),
    end: 'no_funds',
  },
  {
    what: 'an AbortError',
    call: (bank) => bank.call(failing(abortError())),
    end: DOMException.ABORT_ERR,
  },
  {
    what: 'the refusal of a nested call',
    call: (bank) => bank.call(() => bank.limited()),
    end: 'rate_limited',
  },
  {
    what: 'an output that does not fit',
    call: (bank) => bank.checked(),
    end: 'output_invalid',
  },
];

async function bootBank() {
  const application = await boot({ providers: [Bank] });
  const breakers = application.module.get(CircuitBreakers);
  return { ...application, bank: application.get(Bank), breakers };
}

describe.each(IGNORED)('$what says nothing about the dependency', ({ prepare, call, end }) => {
  it('it is not counted, however often', async () => {
    const { bank, store, breakers, telemetry } = await bootBank();
    await prepare?.(store);
    for (let times = 0; times < 3; times++) expect(await endOf(call(bank))).toBe(end);
    expect(await breakers.inspect(KEY)).toBeUndefined();
    expect(telemetry.names.filter((name) => name.startsWith('circuit_'))).toEqual([]);
  });

  it('it gives the permit of a probe back, and neither closes the breaker nor opens it', async () => {
    const { bank, store, breakers, clock, telemetry } = await bootBank();
    await endOf(bank.call(failing(SICK)));
    await clock.advance(10);
    await prepare?.(store);
    telemetry.clear();
    for (let times = 0; times < 3; times++) expect(await endOf(call(bank))).toBe(end);
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'half_open' });
    expect(await bank.call()).toBe('well');
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'closed' });
    expect(telemetry.names.filter((name) => name.startsWith('circuit_'))).toEqual([
      'circuit_half_opened',
      'circuit_closed',
    ]);
  });
});

describe('what is a failure?', () => {
  it.each<[string, unknown]>([
    ['an error', SICK],
    ['an HttpException of 500', new InternalServerErrorException()],
    ['an HttpException of 503', new HttpException('down', 503)],
    ['a text', 'down'],
    ['undefined', undefined],
    ['an error that cannot be read', new Proxy(SICK, { get: failing(new Error('unreadable')) })],
    ['a server error that is no HttpException', Object.assign(new Error('x'), { status: 400 })],
  ])('%s', async (_, thrown) => {
    const { bank, breakers } = await bootBank();
    await bank.call(failing(thrown)).catch(() => undefined);
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'open' });
  });

  it('the 500 of a nested call is the caller’s as well, its refusal is not', async () => {
    const { bank, breakers } = await bootBank();
    await endOf(bank.call(() => bank.call(failing(SICK))));
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'open' });
  });
});

/** A service whose one method has a breaker with these options, on which one failure counts. */
function makeService(options: CircuitBreakerOptions) {
  @Injectable()
  class Service {
    @CircuitBreaker({ ...BREAKER, ...options })
    async call(body: () => unknown): Promise<unknown> {
      return body();
    }
  }
  return Service;
}

async function opens(options: CircuitBreakerOptions, body: () => unknown): Promise<boolean> {
  const Service = makeService(options);
  const { get, module } = await boot({ providers: [Service] });
  await get(Service)
    .call(body)
    .catch(() => undefined);
  return (await module.get(CircuitBreakers).inspect('cmdx:cb:Service.call'))?.state === 'open';
}

describe('what do "ignore" and "failOn" change?', () => {
  const isRejected = (error: unknown): boolean => error instanceof Rejected;
  const throws = (): boolean => {
    throw new Error('a predicate that throws');
  };

  it.each([
    ['a class', Rejected],
    ['a base class', Error],
    ['a predicate', isRejected],
    ['a list of which one fits', [TypeError, isRejected]],
  ])('ignore: %s', async (_, ignore) => {
    expect(await opens({ ignore }, failing(new Declined('no')))).toBe(false);
  });

  it.each([
    ['a class', TypeError],
    ['a predicate', isRejected],
    ['a list of which none fits', [TypeError, isRejected]],
    ['a predicate that throws', throws],
    ['a predicate that answers what is no boolean', (() => 'yes') as never],
  ])('ignore, and another error: %s', async (_, ignore) => {
    expect(await opens({ ignore }, failing(SICK))).toBe(true);
  });

  it('ignore: a success stays a success, and is counted', async () => {
    const Service = makeService({ ignore: () => true });
    const { get, module } = await boot({ providers: [Service] });
    await get(Service).call(() => 'well');
    expect(await module.get(CircuitBreakers).inspect('cmdx:cb:Service.call')).toMatchObject({
      calls: 1,
      failures: 0,
    });
  });

  it.each([
    ['a class', NotFoundException],
    ['a base class', HttpException],
    ['a predicate', (error: unknown) => error instanceof NotFoundException],
    ['a list of which one fits', [TypeError, NotFoundException]],
  ])('failOn: a 404 counts, by %s', async (_, failOn) => {
    expect(await opens({ failOn }, failing(new NotFoundException()))).toBe(true);
  });

  it.each([
    ['another class', TypeError],
    ['a predicate that throws', throws],
    ['a list of which none fits', [TypeError, throws]],
  ])('failOn: a 404 does not count, by %s', async (_, failOn) => {
    expect(await opens({ failOn }, failing(new NotFoundException()))).toBe(false);
  });

  it('failOn goes before ignore, and before what the table says of aborts', async () => {
    const both = { ignore: Rejected, failOn: Declined } as const;
    expect(await opens(both, failing(new Declined('no')))).toBe(true);
    expect(await opens(both, failing(new Rejected('no')))).toBe(false);
    expect(await opens({ failOn: DOMException }, failing(abortError()))).toBe(true);
  });

  it('neither has a say in skip(), fail() and refusals of the call’s own rings', async () => {
    const all = { failOn: () => true };
    expect(await opens(all, () => skip('closed'))).toBe(false);
    expect(await opens(all, () => fail('no funds'))).toBe(false);
  });

  it('the body’s own error is what the caller gets, also when a predicate throws', async () => {
    const Service = makeService({ ignore: throws, failOn: throws });
    const { get } = await boot({ providers: [Service] });
    await expect(get(Service).call(failing(SICK))).rejects.toBe(SICK);
  });
});
