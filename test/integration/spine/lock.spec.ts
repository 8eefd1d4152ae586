import { afterEach, describe, expect, it } from '@jest/globals';
import { Injectable, Logger, type LoggerService, Scope } from '@nestjs/common';
import {
  arg,
  DefinitionError,
  fail,
  LoggerTelemetry,
  LockWith,
  MemoryStore,
  OnTelemetry,
  perTask,
  RateLimit,
  skip,
  StoreError,
  SystemClock,
  Telemetry,
  type TelemetryEvent,
  type TelemetryEventName,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

const KEY = 'cmdx:lock:account:42';
const BOOM = new Error('boom');

@Injectable()
class Accounts {
  constructor(readonly door: Door) {}

  /** Each call goes through a door of its own, so that a test lets out whom it wants. */
  @LockWith(arg(0), { name: 'account', ttl: 10 })
  async through(_id: string, door: Door = this.door): Promise<string> {
    await door.pass();
    return 'through';
  }

  @LockWith(arg(0), { name: 'account', ttl: 10, wait: 5 })
  async waiting(_id: string, door: Door = this.door): Promise<string> {
    await door.pass();
    return 'waited';
  }

  @LockWith(arg(0), { name: 'account', ttl: 10, wait: '20s', onBusy: 'skip' })
  async waitingOrSkipped(_id: string, door: Door = this.door): Promise<string | undefined> {
    await door.pass();
    return 'waited';
  }

  @RateLimit(perTask, { max: 2, per: 3600 })
  @LockWith(arg(0), { name: 'account', ttl: 10, wait: 5 })
  async limited(_id: string, door: Door = this.door): Promise<string> {
    await door.pass();
    return 'limited';
  }

  @LockWith(arg(0), { name: 'account', wait: null })
  async waitNull(_id: string): Promise<void> {}

  @LockWith(arg(0), { name: 'account', wait: false })
  async waitFalse(_id: string): Promise<void> {}

  @LockWith(arg(0), { name: 'account', wait: 0 })
  async waitZero(_id: string): Promise<void> {}

  @LockWith(arg(0), { name: 'account' })
  async ends(_id: string, how: 'succeed' | 'skip' | 'fail' | 'throw'): Promise<string | undefined> {
    if (how === 'skip') return skip('nothing to do');
    if (how === 'fail') return fail('impossible');
    if (how === 'throw') throw BOOM;
    return 'done';
  }

  @LockWith(arg(0), { name: 'account' })
  async nests(id: string): Promise<string> {
    return this.waiting(id);
  }

  @LockWith(perTask)
  async nestsDeeper(id: string): Promise<string> {
    return this.nests(id);
  }

  @LockWith(perTask)
  async nestsTwins(id: string): Promise<string[]> {
    return Promise.all([this.waiting(id), this.waiting(id)]);
  }
}

/** Boots, and takes the lease of account 42 with a call that ends when its door opens. */
async function withHolder() {
  const application = await boot({ providers: [Door, Accounts] });
  const accounts = application.get(Accounts);
  const door = new Door();
  const holding = accounts.through('42', door);
  const holder = application.telemetry.of('lock_acquired')[0]?.tid;
  accounts.door.open();
  return { ...application, accounts, door, holding, holder };
}

/** When, on the manual clock, a call ended, and how. */
async function timed<T>(call: Promise<T>, now: () => number) {
  try {
    return { value: await call, at: now() };
  } catch (error) {
    return { error, at: now() };
  }
}

describe('Is the lease given back, whatever becomes of the body?', () => {
  it.each(['succeed', 'skip', 'fail', 'throw'] as const)('%s', async (how) => {
    const { get, store, telemetry } = await boot({ providers: [Door, Accounts] });
    const accounts = get(Accounts);
    await accounts.ends('42', how).catch(() => undefined);
    expect(telemetry.of('lock_acquired')).toMatchObject([{ payload: { lockKey: KEY } }]);
    expect(await store.get(KEY)).toBeUndefined();
    await expect(accounts.ends('42', 'succeed')).resolves.toBe('done');
  });
});

describe('Whose is a lease?', () => {
  it('its value is the tid of the run that holds it, for the ttl', async () => {
    const { store, holder, holding, door } = await withHolder();
    expect(holder).toMatch(/^[0-9a-f-]{36}$/);
    expect(await store.inspect(KEY)).toEqual({ value: holder, remainingTtl: 10, at: 0 });
    door.open();
    await holding;
    expect(await store.inspect(KEY)).toBeUndefined();
  });

  it('a worker that outlived its ttl does not delete the lease of the next holder', async () => {
    const { accounts, clock, store, door, holding, telemetry } = await withHolder();
    await clock.advance('10s');
    const nextDoor = new Door();
    const next = accounts.through('42', nextDoor);
    const nextTid = telemetry.of('lock_acquired').at(-1)?.tid;
    expect(await store.get(KEY)).toBe(nextTid);
    door.open();
    await expect(holding).resolves.toBe('through');
    expect(await store.get(KEY)).toBe(nextTid);
    await expect(accounts.through('42')).rejects.toMatchObject({ metadata: { holder: nextTid } });
    nextDoor.open();
    await next;
    expect(await store.get(KEY)).toBeUndefined();
  });

  it('one millisecond before its ttl has passed it is still held', async () => {
    const { accounts, clock, door, holding } = await withHolder();
    await clock.advance('9999ms');
    await expect(accounts.through('42')).rejects.toMatchObject({ retryAfter: 0.001 });
    await clock.advance('1ms');
    await expect(accounts.through('42')).resolves.toBe('through');
    door.open();
    await holding;
  });

  it('methods of one name share it; other methods do not', async () => {
    const { accounts, store, door, holding } = await withHolder();
    await expect(accounts.ends('42', 'succeed')).rejects.toMatchObject({ code: 'busy' });
    await expect(accounts.ends('43', 'succeed')).resolves.toBe('done');
    expect(await store.get('cmdx:lock:Accounts.through:42')).toBeUndefined();
    door.open();
    await holding;
  });
});

describe('How long does a caller wait?', () => {
  it.each(['waitNull', 'waitFalse', 'waitZero'] as const)('%s: not at all', async (method) => {
    const { accounts, clock, door, holding } = await withHolder();
    await expect(accounts[method]('42')).rejects.toMatchObject({ code: 'busy' });
    expect(clock.now()).toBe(0);
    door.open();
    await holding;
  });

  it('until the budget is used up, and not a millisecond longer', async () => {
    const { accounts, clock, door, holding, holder } = await withHolder();
    const waiting = timed(accounts.waiting('42'), () => clock.now());
    await clock.advance('8s');
    expect(await waiting).toMatchObject({
      at: 5_000,
      error: { code: 'busy', retryAfter: 5, metadata: { holder, lockKey: KEY } },
    });
    door.open();
    await holding;
  });

  it('until the holder has ended', async () => {
    const { accounts, clock, door, holding } = await withHolder();
    const waiting = timed(accounts.waiting('42'), () => clock.now());
    await clock.advance('2s');
    door.open();
    await holding;
    await clock.advance('2s');
    const { value, at } = (await waiting) as { value: string; at: number };
    expect(value).toBe('waited');
    expect(at).toBeGreaterThanOrEqual(2_000);
    expect(at).toBeLessThanOrEqual(2_200);
  });

  it('no longer than the lease can last: a crashed holder is succeeded on the millisecond', async () => {
    const { accounts, clock, store, holding, door } = await withHolder();
    const waiting = timed(accounts.waitingOrSkipped('42'), () => clock.now());
    await clock.advance('20s');
    const { value, at } = (await waiting) as { value: string; at: number };
    expect(value).toBe('waited');
    expect(Math.floor(at)).toBe(10_000);
    expect(await store.get(KEY)).toBeUndefined();
    door.open();
    await holding;
  });

  it('with onBusy skip too, and then it is skipped', async () => {
    const { accounts, clock, store, door, holding } = await withHolder();
    await store.delete(KEY);
    await store.set(KEY, 'somebody else', { ttl: 600 });
    const waiting = timed(accounts.waitingOrSkipped('42'), () => clock.now());
    await clock.advance('30s');
    expect(await waiting).toEqual({ value: undefined, at: 20_000 });
    door.open();
    await holding;
  });

  it('holding nothing: who waits for one key leaves the others free', async () => {
    const { accounts, store, door, holding, clock } = await withHolder();
    const waiting = accounts.waiting('42');
    await clock.advance('1s');
    expect(await store.get('cmdx:rl:Accounts.limited')).toBeUndefined();
    await expect(accounts.through('43')).resolves.toBe('through');
    door.open();
    await holding;
    await clock.advance('1s');
    await expect(waiting).resolves.toBe('waited');
  });

  it('charged by the rate limit once', async () => {
    const { accounts, store, door, holding, clock } = await withHolder();
    const first = accounts.limited('42');
    await clock.advance('4s');
    expect(await store.get('cmdx:rl:Accounts.limited')).toBe('1');
    door.open();
    await holding;
    await clock.advance('1s');
    await expect(first).resolves.toBe('limited');
    await expect(accounts.limited('42')).resolves.toBe('limited');
    await expect(accounts.limited('42')).rejects.toMatchObject({ code: 'rate_limited' });
    expect(await store.get('cmdx:rl:Accounts.limited')).toBe('3');
  });

  it('refused at once for a key that its own chain holds: it would wait for itself', async () => {
    const { get, clock } = await boot({ providers: [Door, Accounts] });
    await expect(get(Accounts).nests('42')).rejects.toMatchObject({ code: 'busy' });
    await expect(get(Accounts).nestsDeeper('42')).rejects.toMatchObject({ code: 'busy' });
    expect(clock.now()).toBe(0);
  });

  it('as usual for a key that a sibling of its chain holds', async () => {
    const { get, clock } = await boot({ providers: [Door, Accounts] });
    const twins = get(Accounts).nestsTwins('42');
    await clock.advance('1s');
    get(Door).open();
    await clock.advance('1s');
    await expect(twins).resolves.toEqual(['waited', 'waited']);
    expect(get(Door).most).toBe(1);
  });

  it('200 callers of one key: 200 bodies, never two at once', async () => {
    @Injectable()
    class Queue {
      inside = 0;
      most = 0;
      ran = 0;

      @LockWith('one', { wait: 60 })
      async run(): Promise<void> {
        this.most = Math.max(this.most, ++this.inside);
        await new Promise((resolve) => setImmediate(resolve));
        this.inside -= 1;
        this.ran += 1;
      }
    }
    const { get } = await boot({ providers: [Queue] }, { clock: new SystemClock() });
    const queue = get(Queue);
    await Promise.all(Array.from({ length: 200 }, () => queue.run()));
    expect(queue).toMatchObject({ ran: 200, most: 1, inside: 0 });
  }, 30_000);
});

/** What was told, by name and payload. */
function told(events: readonly TelemetryEvent[]): unknown[] {
  return events.map(({ name, payload }) => [name, payload]);
}

@Injectable()
class Told {
  @RateLimit(arg(0), { max: 1, per: 60 })
  @LockWith(arg(0), { ttl: 30 })
  async both(_id: string, body: () => void = () => undefined): Promise<void> {
    body();
  }

  @RateLimit(arg(0), { max: 2, per: 30, limiter: 'leaky_bucket', onLimit: 'skip' })
  async leaky(_id: string): Promise<void> {}

  @RateLimit(arg(0), { max: 1, per: 60, onBlank: 'fail' })
  async keyed(_id: string | undefined): Promise<void> {}

  @RateLimit(arg(0), { max: 5, per: 60 })
  @LockWith(arg(1))
  async half(_id: string, _other: string | undefined): Promise<void> {}
}

@Injectable()
class Tolerant {
  @RateLimit(arg(0), { max: 5, per: 60, onStoreError: 'run' })
  @LockWith(arg(1), { onStoreError: 'run' })
  async run(_limitKey: string, _lockKey: string): Promise<void> {}

  @RateLimit(arg(0), { max: 5, per: 60 })
  @LockWith(arg(1))
  async strict(_limitKey: string, _lockKey: string): Promise<void> {}
}

describe('What is told, and when?', () => {
  it('ring by ring, each event before the body it precedes', async () => {
    const { get, telemetry } = await boot({ providers: [Told] });
    const order: string[] = [];
    const hub = telemetry.events;
    await get(Told).both('42', () => order.push(...hub.map(({ name }) => name), 'body'));
    expect(order).toEqual(['task_started', 'rate_limit_admitted', 'lock_acquired', 'body']);
    expect(told(telemetry.events).slice(1, 3)).toEqual([
      [
        'rate_limit_admitted',
        {
          rateLimitKey: 'cmdx:rl:Told.both:42',
          limiter: 'fixed_window',
          max: 1,
          per: 60,
          count: 1,
        },
      ],
      ['lock_acquired', { lockKey: 'cmdx:lock:Told.both:42' }],
    ]);
  });

  it('a full limit, before the refusal; rings further in are not told of', async () => {
    const { get, telemetry, clock } = await boot({ providers: [Told] });
    await get(Told).both('42');
    telemetry.clear();
    await clock.advance('12.5s');
    let before: readonly TelemetryEventName[] = [];
    await get(Told)
      .both('42')
      .catch(() => (before = telemetry.names));
    expect(before.slice(0, 2)).toEqual(['task_started', 'rate_limit_exceeded']);
    expect(told(telemetry.of('rate_limit_exceeded'))).toEqual([
      [
        'rate_limit_exceeded',
        {
          code: 'rate_limited',
          rateLimitKey: 'cmdx:rl:Told.both:42',
          limiter: 'fixed_window',
          onLimit: 'fail',
          max: 1,
          per: 60,
          count: 2,
          retryAfter: 47.5,
        },
      ],
    ]);
    expect(telemetry.of('lock_acquired')).toEqual([]);
  });

  it('a leaking bucket tells its level, in units', async () => {
    const { get, telemetry, clock } = await boot({ providers: [Told] });
    await get(Told).leaky('42');
    await clock.advance('15s');
    await get(Told).leaky('42');
    await expect(get(Told).leaky('42')).resolves.toBeUndefined();
    const facts = {
      rateLimitKey: 'cmdx:rl:Told.leaky:42',
      limiter: 'leaky_bucket',
      max: 2,
      per: 30,
    };
    expect(told(telemetry.of('rate_limit_admitted'))).toEqual([
      ['rate_limit_admitted', { ...facts, level: 1 }],
      ['rate_limit_admitted', { ...facts, level: 1.5 }],
    ]);
    expect(told(telemetry.of('rate_limit_exceeded'))).toEqual([
      [
        'rate_limit_exceeded',
        { ...facts, code: 'rate_limited', onLimit: 'skip', level: 2.5, retryAfter: 15 },
      ],
    ]);
  });

  it('a busy lock: the rings that passed, then lock_busy, then the end', async () => {
    const { accounts, telemetry, clock, door, holding, holder } = await withHolder();
    telemetry.clear();
    const waiting = accounts.limited('42').catch(() => undefined);
    await clock.advance('1s');
    expect(telemetry.names).toEqual(['task_started', 'rate_limit_admitted']);
    await clock.advance('4s');
    await waiting;
    expect(telemetry.names).toEqual([
      'task_started',
      'rate_limit_admitted',
      'lock_busy',
      'task_executed',
    ]);
    expect(told(telemetry.of('lock_busy'))).toEqual([
      ['lock_busy', { code: 'busy', lockKey: KEY, onBusy: 'fail', holder, retryAfter: 5 }],
    ]);
    door.open();
    await holding;
  });

  it('a lock that was waited for: acquired, once, and never busy', async () => {
    const { accounts, telemetry, clock, door, holding } = await withHolder();
    telemetry.clear();
    const waiting = accounts.limited('42');
    await clock.advance('1s');
    door.open();
    await holding;
    telemetry.clear();
    await clock.advance('1s');
    await waiting;
    expect(telemetry.names).toEqual(['lock_acquired', 'task_executed']);
  });

  it('a blank key: the policy steps aside in its place, and writes nothing', async () => {
    const { get, telemetry, store } = await boot({ providers: [Told] });
    await get(Told).half('42', undefined);
    expect(told(telemetry.events.slice(1, 3))).toEqual([
      ['rate_limit_admitted', expect.objectContaining({ count: 1 })],
      ['policy_bypassed', { policy: 'lock', reason: 'blank' }],
    ]);
    await get(Told).half('', 'lock');
    expect(await store.get('cmdx:rl:Told.half:')).toBeUndefined();
    expect(telemetry.names.slice(4)).toEqual([
      'task_started',
      'policy_bypassed',
      'lock_acquired',
      'task_executed',
    ]);
  });

  it('a blank key during an outage: it is told all the same, in ring order', async () => {
    class Down extends MemoryStore {
      override enter(): never {
        throw new StoreError('disconnected', 'down');
      }
    }
    const { get, telemetry } = await boot({ providers: [Tolerant] }, { store: new Down() });
    const calls = async (limitKey: string, lockKey: string): Promise<unknown> => {
      telemetry.clear();
      await get(Tolerant).run(limitKey, lockKey);
      return told(telemetry.events.slice(1, -1));
    };
    const storeError = (policy: string) => [
      'store_error',
      { operation: 'enter', policies: [policy], error: expect.any(StoreError) },
    ];
    expect(await calls('', '42')).toEqual([
      ['policy_bypassed', { policy: 'rateLimit', reason: 'blank' }],
      storeError('lock'),
      ['policy_bypassed', { policy: 'lock', reason: 'store_error' }],
    ]);
    expect(await calls('42', '')).toEqual([
      storeError('rateLimit'),
      ['policy_bypassed', { policy: 'rateLimit', reason: 'store_error' }],
      ['policy_bypassed', { policy: 'lock', reason: 'blank' }],
    ]);
    telemetry.clear();
    await expect(get(Tolerant).strict('', '42')).rejects.toMatchObject({
      code: 'store_unavailable',
    });
    expect(telemetry.names).toEqual([
      'task_started',
      'policy_bypassed',
      'store_error',
      'task_executed',
    ]);
  });

  it('onBlank fail refuses with key_missing instead', async () => {
    const { get, telemetry } = await boot({ providers: [Told] });
    await expect(get(Told).keyed(undefined)).rejects.toMatchObject({
      code: 'key_missing',
      metadata: { policy: 'rateLimit' },
    });
    expect(telemetry.of('policy_bypassed')).toEqual([]);
  });

  it('every event is frozen and says who, what and when', async () => {
    const { get, telemetry } = await boot({ providers: [Told] });
    await get(Told).both('42');
    for (const event of telemetry.events) {
      expect(Object.isFrozen(event)).toBe(true);
      expect(Object.isFrozen(event.payload)).toBe(true);
      expect(event).toMatchObject({ task: 'Told.both', root: true, xid: undefined });
      expect(event.timestamp).toBeInstanceOf(Date);
      expect(Math.abs(event.timestamp.getTime() - Date.now())).toBeLessThan(60_000);
    }
  });
});

/** Keeps what Nest's logger is told while a test runs. */
class Log implements LoggerService {
  readonly lines: [level: string, line: string][] = [];

  log = (line: string) => void this.lines.push(['log', line]);
  warn = (line: string) => void this.lines.push(['warn', line]);
  error = (line: string) => void this.lines.push(['error', line]);
  debug = (line: string) => void this.lines.push(['debug', line]);

  of(level: string): readonly string[] {
    return this.lines.filter(([each]) => each === level).map(([, line]) => line);
  }
}

function capture(): Log {
  const log = new Log();
  Logger.overrideLogger(log);
  return log;
}

describe('What does LoggerTelemetry print?', () => {
  afterEach(() => Logger.overrideLogger(false));

  it('refusals and admissions, with a digest where a key would be', async () => {
    const { get } = await boot({ providers: [Told] }, { telemetry: [new LoggerTelemetry()] });
    const log = capture();
    await get(Told).both('ada@example.com');
    await get(Told)
      .both('ada@example.com')
      .catch(() => undefined);
    const text = log.lines.flat().join('\n');
    expect(text).not.toContain('ada@');
    expect(log.of('warn')).toEqual([
      expect.stringMatching(
        /^rate_limit_exceeded task=Told\.both code=rate_limited limiter=fixed_window retryAfter=60 key=[0-9a-f]{8} /,
      ),
    ]);
    expect(log.of('debug').map((line) => line.split(' ')[0])).toEqual([
      'rate_limit_admitted',
      'lock_acquired',
    ]);
  });

  it('keys when it is told to', async () => {
    const telemetry = [new LoggerTelemetry({ keys: true })];
    const { get } = await boot({ providers: [Told] }, { telemetry });
    const log = capture();
    await get(Told).both('ada@example.com');
    expect(log.of('debug').join('\n')).toContain('key=cmdx:lock:Told.both:ada@example.com');
  });
});

@Injectable()
class Listener {
  readonly heard: TelemetryEvent[] = [];

  @OnTelemetry('lock_busy')
  onBusy(event: TelemetryEvent<'lock_busy'>): void {
    this.heard.push(event);
  }

  @OnTelemetry('lock_acquired')
  async onAcquired(event: TelemetryEvent<'lock_acquired'>): Promise<void> {
    this.heard.push(event);
  }
}

@Injectable()
class LeafListener extends Listener {}

@Injectable({ scope: Scope.REQUEST })
class ScopedListener {
  @OnTelemetry('lock_busy')
  onBusy(): void {}
}

describe('Who may listen?', () => {
  afterEach(() => Logger.overrideLogger(false));

  it.each([Listener, LeafListener])('methods of %p with @OnTelemetry', async (target) => {
    const { accounts, module, door, holding } = await (async () => {
      const application = await boot({ providers: [Door, Accounts, target] });
      const held = new Door();
      const ofAccounts = application.get(Accounts);
      return {
        ...application,
        accounts: ofAccounts,
        door: held,
        holding: ofAccounts.through('42', held),
      };
    })();
    await accounts.through('42').catch(() => undefined);
    const listener = module.get<Listener>(target);
    expect(listener.heard.map(({ name }) => name)).toEqual(['lock_acquired', 'lock_busy']);
    door.open();
    await holding;
  });

  it('a listener that throws or rejects changes nothing, and is logged once', async () => {
    const { get } = await boot({ providers: [Told] });
    const log = capture();
    const telemetry = get(Telemetry);
    telemetry.subscribe('lock_acquired', () => {
      throw BOOM;
    });
    telemetry.subscribe('task_started', () => Promise.reject(BOOM));
    for (const id of ['1', '2', '3']) await expect(get(Told).both(id)).resolves.toBeUndefined();
    await new Promise((resolve) => setImmediate(resolve));
    expect(log.of('error')).toHaveLength(2);
    expect(log.of('error').join('\n')).toMatch(/"task_started"|"lock_acquired"/);
  });

  it('until it unsubscribes', async () => {
    const { get } = await boot({ providers: [Told] });
    const heard: string[] = [];
    const unsubscribe = get(Telemetry).subscribe('task_started', ({ tid }) => heard.push(tid));
    await get(Told).both('1');
    unsubscribe();
    await get(Told).both('2');
    expect(heard).toHaveLength(1);
  });

  it('to events that there are: others are refused by name', async () => {
    const { get } = await boot({ providers: [Told] });
    const unknown = 'lock_bussy' as TelemetryEventName;
    expect(() => get(Telemetry).subscribe(unknown, () => undefined)).toThrow(DefinitionError);
    expect(() => get(Telemetry).subscribe(unknown, () => undefined)).toThrow('lock_busy');
    expect(() => {
      class Misspelt {
        @OnTelemetry(unknown)
        heard(): void {}
      }
      return Misspelt;
    }).toThrow(/Misspelt\.heard.*"lock_bussy"/);
  });

  it('only where there is one instance: a request-scoped listener is a DefinitionError', async () => {
    const booting = boot({ providers: [ScopedListener] });
    await expect(booting).rejects.toThrow(DefinitionError);
    await expect(booting).rejects.toThrow('ScopedListener.onBusy');
  });
});
