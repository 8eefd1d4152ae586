import { afterEach, describe, expect, it, jest } from '@jest/globals';
import {
  type ArgumentMetadata,
  type CanActivate,
  Controller,
  type ExecutionContext,
  Get,
  Header,
  HttpCode,
  Injectable,
  Param,
  type PipeTransform,
  SetMetadata,
  type Type,
  UseGuards,
  UsePipes,
} from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { Cron, Interval, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { currentInvocation, input, LockWith, RateLimit, Store } from 'nestjs-cmdx';
import { ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';
import { decorateMethod, insertions, named, permutations } from '../../support/http-decorate.js';

closeAppsAfterEach();

/** What happened around one request, in order. */
const trace: string[] = [];

@Injectable()
class RoleGuard implements CanActivate {
  constructor(private readonly reflector: Reflector) {}

  canActivate(context: ExecutionContext): boolean {
    trace.push(`guard:${this.reflector.get<string>('role', context.getHandler())}`);
    return true;
  }
}

@Injectable()
class TracingPipe implements PipeTransform<string, string> {
  transform(value: string, { data }: ArgumentMetadata): string {
    trace.push(`pipe:${data}`);
    return `piped-${value}`;
  }
}

const ROUTE = ['get', Get(':id')] as const;
const GUARDS = ['guards', UseGuards(RoleGuard)] as const;
const PIPES = ['pipes', UsePipes(TracingPipe)] as const;
const METADATA = ['metadata', SetMetadata('role', 'auditor')] as const;
const STATUS = ['status', HttpCode(203)] as const;
const HEADER = ['header', Header('X-Flavour', 'plum')] as const;
const LOCK = ['lock', LockWith(input('id'))] as const;
const LIMIT = ['limit', RateLimit(input('id'), { max: 1, per: 60 })] as const;

type Decoration = readonly [name: string, decorator: unknown];

/** A controller whose only route carries the decorators in the given order. */
function makeProbe(position: number, order: readonly Decoration[]): Type {
  @Controller(`probe-${position}`)
  class Probe {
    constructor(private readonly store: Store) {}

    async read(@Param('id') id: string) {
      const run = currentInvocation();
      return {
        id,
        task: run?.task,
        lockHolder: await this.store.get(`cmdx:lock:Probe${position}.read:${id}`),
        starts: await this.store.get(`cmdx:rl:Probe${position}.read:${id}`),
        heldByThisRun: run?.lock?.key === `cmdx:lock:Probe${position}.read:${id}`,
        tid: run?.tid,
      };
    }
  }
  decorateMethod(
    Probe.prototype,
    'read',
    order.map(([, decorator]) => decorator),
  );
  return named(`Probe${position}`, Probe);
}

const ordersOf = (...decorations: readonly Decoration[]): Decoration[][] =>
  permutations(decorations);

/** Every route decorator in the order people write them, and ours at every pair of places. */
const everyPairOfPlaces = insertions<Decoration>(
  [METADATA, HEADER, ROUTE, STATUS, GUARDS, PIPES],
  LOCK,
).flatMap((order) => insertions(order, LIMIT));

/** Which of @UseGuards and @UsePipes comes first is Nest's own affair: half of the orders will do. */
const guardsAbovePipes = (order: readonly Decoration[]): boolean =>
  order.indexOf(GUARDS) < order.indexOf(PIPES);

const FAMILIES: readonly [name: string, orders: Decoration[][]][] = [
  ['@LockWith alone', ordersOf(ROUTE, GUARDS, PIPES, METADATA, LOCK)],
  ['@RateLimit alone', ordersOf(ROUTE, GUARDS, PIPES, METADATA, LIMIT)],
  ['both', ordersOf(ROUTE, GUARDS, PIPES, METADATA, LOCK, LIMIT).filter(guardsAbovePipes)],
  ['both, with @HttpCode and @Header', everyPairOfPlaces],
];

describe.each(ADAPTERS)('on %s', (adapter) => {
  it.each(FAMILIES)(
    '%s work at every position among Nest’s decorators',
    async (family, orders) => {
      const http = await startHttp(adapter, {
        controllers: orders.map((order, position) => makeProbe(position, order)),
      });
      for (const [position, order] of orders.entries()) {
        const written = order.map(([name]) => name).join(' > ');
        const has = (decoration: Decoration): boolean => order.includes(decoration);
        trace.length = 0;
        const first = await http.get(`/probe-${position}/7`);
        const { tid, ...seen } = first.body as { tid: string; lockHolder: string };
        expect({ written, status: first.status, header: first.headers.get('x-flavour') }).toEqual({
          written,
          status: has(STATUS) ? 203 : 200,
          header: has(HEADER) ? 'plum' : null,
        });
        expect({ written, trace }).toEqual({ written, trace: ['guard:auditor', 'pipe:id'] });
        expect({ written, ...seen }).toEqual({
          written,
          id: 'piped-7',
          task: `Probe${position}.read`,
          heldByThisRun: has(LOCK),
          ...(has(LOCK) && { lockHolder: tid }),
          ...(has(LIMIT) && { starts: '1' }),
        });
        expect(await http.store.get(`cmdx:lock:Probe${position}.read:piped-7`)).toBeUndefined();

        if (family !== '@RateLimit alone') continue;
        trace.length = 0;
        const second = await http.get(`/probe-${position}/7`);
        expect({ written, status: second.status }).toEqual({ written, status: 429 });
        expect({ written, trace }).toEqual({ written, trace: ['guard:auditor', 'pipe:id'] });
      }
      const requests = family === '@RateLimit alone' ? 2 * orders.length : orders.length;
      expect(http.telemetry.of('task_started')).toHaveLength(requests);
    },
    30_000,
  );

  it('a request goes the same way with @UseGuards and @UsePipes on the class', async () => {
    @Controller('files')
    @UseGuards(RoleGuard)
    @LockWith(input('id'))
    @UsePipes(TracingPipe)
    @SetMetadata('role', 'of the class')
    class Files {
      @Get(':id')
      read(@Param('id') id: string) {
        return { id, lock: currentInvocation()?.lock?.key };
      }
    }
    const http = await startHttp(adapter, { controllers: [Files] });
    trace.length = 0;
    const answer = await http.get('/files/7');
    expect(answer.status).toBe(200);
    expect(answer.body).toEqual({ id: 'piped-7', lock: 'cmdx:lock:Files.read:piped-7' });
    expect(trace).toEqual(['guard:undefined', 'pipe:id']);
  });
});

/** Once a year, at a moment that no test run meets by chance. */
const YEARLY = '0 0 4 29 2 *';
const EVERY_MS = 1_000;
/** How many bodies of scheduled jobs have run, by class. */
const runs = new Map<string, number>();

/** A provider without a route, whose only method is scheduled and guarded in the given order. */
function makeJob(name: string, order: readonly Decoration[]): Type {
  @Injectable()
  class Job {
    constructor(private readonly store: Store) {}

    async sweep(): Promise<void> {
      runs.set(name, (runs.get(name) ?? 0) + 1);
      const holder = await this.store.get(`cmdx:lock:${name}.sweep:nightly`);
      trace.push(`${name}:${holder !== undefined && holder === currentInvocation()?.tid}`);
    }
  }
  decorateMethod(
    Job.prototype,
    'sweep',
    order.map(([, decorator]) => decorator),
  );
  return named(name, Job);
}

/** Jobs with the scheduling decorator at every position, each named after its class. */
function makeJobs(prefix: string, schedule: (name: string) => unknown): Type[] {
  return permutations(['schedule', 'metadata', 'lock', 'limit']).map((order, position) => {
    const name = `${prefix}${position}`;
    const decorators: Readonly<Record<string, Decoration>> = {
      schedule: ['schedule', schedule(name)],
      metadata: METADATA,
      lock: ['lock', LockWith('nightly')],
      limit: ['limit', RateLimit('nightly', { max: 2, per: 60 })],
    };
    return makeJob(
      name,
      order.map((each) => decorators[each] as Decoration),
    );
  });
}

describe('@nestjs/schedule', () => {
  afterEach(() => {
    jest.useRealTimers();
  });

  it('a @Cron job is registered once and runs guarded, whatever the order of its decorators', async () => {
    const jobs = makeJobs('CronJob', (name) => Cron(YEARLY, { name }));
    const http = await startHttp('express', {
      imports: [ScheduleModule.forRoot()],
      providers: jobs,
    });
    const registered = http.app.get(SchedulerRegistry).getCronJobs();
    expect([...registered.keys()].toSorted()).toEqual(jobs.map(({ name }) => name).toSorted());

    trace.length = 0;
    runs.clear();
    for (let tick = 0; tick < 3; tick++) {
      for (const job of registered.values()) await job.fireOnTick();
    }
    // The limit of 2 turned the third tick away, so the policies were in effect.
    expect([...runs.values()]).toEqual(jobs.map(() => 2));
    expect(new Set(trace)).toEqual(new Set(jobs.map(({ name }) => `${name}:true`)));
    expect(http.telemetry.of('task_started')).toHaveLength(3 * jobs.length);
    expect(http.telemetry.of('rate_limit_exceeded')).toHaveLength(jobs.length);
  });

  it('an @Interval job runs once per tick, whatever the order of its decorators', async () => {
    // The scheduler counts on the test's clock; everything else stays real.
    jest.useFakeTimers({
      doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask', 'performance'],
    });
    const jobs = makeJobs('IntervalJob', (name) => Interval(name, EVERY_MS));
    const http = await startHttp('express', {
      imports: [ScheduleModule.forRoot()],
      providers: jobs,
    });
    expect(http.app.get(SchedulerRegistry).getIntervals()).toHaveLength(jobs.length);

    trace.length = 0;
    runs.clear();
    for (let tick = 1; tick <= 3; tick++) {
      await jest.advanceTimersByTimeAsync(EVERY_MS);
      expect([...runs.values()]).toEqual(jobs.map(() => Math.min(tick, 2)));
      expect(http.telemetry.of('task_started')).toHaveLength(tick * jobs.length);
    }
    expect(new Set(trace)).toEqual(new Set(jobs.map(({ name }) => `${name}:true`)));
  });
});

/** A transaction whose COMMIT looks at the lease. */
interface Commit {
  readonly task: string;
  readonly heldAtCommit: boolean;
}
const commits: Commit[] = [];

type AsyncMethod = (this: { store: Store }, ...args: unknown[]) => Promise<unknown>;

/** BEGIN, body, COMMIT; notes whether the lease was still held when COMMIT was done. */
function inTransaction(original: AsyncMethod, lockKey: (self: object) => string): AsyncMethod {
  return async function (...args) {
    const value = await original.apply(this, args);
    // A round trip to the database: whoever released early would have done so by now.
    await new Promise((resolve) => setImmediate(resolve));
    const holder = await this.store.get(lockKey(this));
    commits.push({ task: lockKey(this), heldAtCommit: holder !== undefined });
    return value;
  };
}

const lockKeyOf = (method: string) => (self: object) =>
  `cmdx:lock:${self.constructor.name}.${method}:7`;

/** Replaces the method by a plain function, as a careless library does. */
const NaiveTransactional: MethodDecorator = (_target, method, descriptor) => {
  const original = descriptor.value as unknown as AsyncMethod;
  return {
    ...descriptor,
    value: inTransaction(original, lockKeyOf(String(method))) as never,
  };
};

/** Replaces the method and keeps its name and metadata, as a careful library does. */
const CarefulTransactional: MethodDecorator = (_target, method, descriptor) => {
  const original = descriptor.value as unknown as AsyncMethod;
  const replacement = inTransaction(original, lockKeyOf(String(method)));
  Object.defineProperty(replacement, 'name', { value: original.name });
  for (const key of Reflect.getMetadataKeys(original)) {
    Reflect.defineMetadata(key, Reflect.getMetadata(key, original), replacement);
  }
  return { ...descriptor, value: replacement as never };
};

const TRANSACTIONALS = [
  ['naive', NaiveTransactional],
  ['careful', CarefulTransactional],
] as const;

describe.each(TRANSACTIONALS)('a %s decorator that replaces the method', (kind, Transactional) => {
  const TRANSACTION = ['transaction', Transactional] as const;
  const STAYING_LIMIT = ['limit', RateLimit(input('id'), { max: 10, per: 60 })] as const;

  it('stays inside one envelope of a service method, above, below and between ours', async () => {
    const orders = [
      ...ordersOf(TRANSACTION, LOCK, STAYING_LIMIT),
      ...ordersOf(TRANSACTION, TRANSACTION, LOCK, STAYING_LIMIT),
    ];
    const services = orders.map((order, position) => {
      @Injectable()
      class Ledger {
        constructor(readonly store: Store) {}

        async post(@Param('id') id: string): Promise<string> {
          return `posted ${id}`;
        }
      }
      decorateMethod(
        Ledger.prototype,
        'post',
        order.map(([, decorator]) => decorator),
      );
      return named(`Ledger${position}`, Ledger);
    });
    const http = await startHttp('express', { providers: services });

    for (const [position, service] of services.entries()) {
      const order = orders[position] as Decoration[];
      const written = order.map(([name]) => name).join(' > ');
      http.telemetry.clear();
      commits.length = 0;
      const ledger = http.app.get<{ post(id: string): Promise<string> }>(service);
      expect(await ledger.post('7')).toBe('posted 7');
      expect({ written, events: http.telemetry.names }).toEqual({
        written,
        events: ['task_started', 'rate_limit_admitted', 'lock_acquired', 'task_executed'],
      });
      const task = `cmdx:lock:Ledger${position}.post:7`;
      expect({ written, commits }).toEqual({
        written,
        commits: order
          .filter((each) => each === TRANSACTION)
          .map(() => ({ task, heldAtCommit: true })),
      });
      expect(await http.store.get(task)).toBeUndefined();
      expect(await http.store.get(`cmdx:rl:Ledger${position}.post:7`)).toBe('1');
    }
  });

  it.each(ADAPTERS)('stays inside one envelope of a handler, on %s', async (adapter) => {
    const GET = ['get', Get(':id')] as const;
    const orders = ordersOf(GET, TRANSACTION, LOCK, STAYING_LIMIT);
    const controllers = orders.map((order, position) => {
      @Controller(`ledger-${position}`)
      class LedgerRoute {
        constructor(readonly store: Store) {}

        async post(@Param('id') id: string): Promise<string> {
          return `posted ${id}`;
        }
      }
      decorateMethod(
        LedgerRoute.prototype,
        'post',
        order.map(([, decorator]) => decorator),
      );
      return named(`LedgerRoute${position}`, LedgerRoute);
    });
    const http = await startHttp(adapter, { controllers });

    for (const [position, order] of orders.entries()) {
      const written = order.map(([name]) => name).join(' > ');
      // A wrapper that drops metadata, written above @Get, hides the route from Nest itself.
      const hidden = kind === 'naive' && order.indexOf(TRANSACTION) < order.indexOf(GET);
      http.telemetry.clear();
      commits.length = 0;
      const answer = await http.get(`/ledger-${position}/7`);
      expect({ written, status: answer.status }).toEqual({ written, status: hidden ? 404 : 200 });
      if (hidden) continue;

      const task = `cmdx:lock:LedgerRoute${position}.post:7`;
      expect({ written, commits }).toEqual({ written, commits: [{ task, heldAtCommit: true }] });
      expect({ written, events: http.telemetry.names }).toEqual({
        written,
        events: ['task_started', 'rate_limit_admitted', 'lock_acquired', 'task_executed'],
      });
      expect(await http.store.get(task)).toBeUndefined();
      expect(await http.store.get(`cmdx:rl:LedgerRoute${position}.post:7`)).toBe('1');
    }
  });
});
