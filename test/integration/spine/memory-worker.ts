import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
  type CallHandler,
  Controller,
  type ExecutionContext,
  Get,
  Injectable,
  type NestInterceptor,
  NotFoundException,
  Param,
} from '@nestjs/common';
import { APP_INTERCEPTOR, NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { Test } from '@nestjs/testing';
import {
  arg,
  Cmdx,
  CmdxModule,
  currentInvocation,
  LockWith,
  RateLimit,
} from '../../../lib/index.js';
import { RedisStore } from '../../../lib/store/redis/index.js';
import { Door } from '../../support/door.js';
import { until } from '../../support/time.js';

/**
 * Questions about what is left behind, each in a process of its own: jest's own handles and
 * references would blur the answer. The scenario's name is the first argument, its answer the
 * message; afterwards nothing may keep the process alive.
 */
setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

/** Of each kind. */
const REQUESTS = 5_000;
const LINKS = 20_000;

const contexts = new Map<string, WeakRef<object>[]>();
const requests = new Map<string, WeakRef<object>[]>();
const values: WeakRef<object>[] = [];
const intervals: NodeJS.Timeout[] = [];

function note(into: Map<string, WeakRef<object>[]>, name: string, seen: object): void {
  const noted = into.get(name) ?? [];
  into.set(name, noted);
  noted.push(new WeakRef(seen));
}

/** Something of a request that does not end with it. */
function leaveBehind(task: () => void = () => undefined): void {
  intervals.push(setInterval(task, 1_000_000));
}

async function alive(references: readonly WeakRef<object>[] = []): Promise<number> {
  for (let round = 0; round < 5; round++) {
    await sleep(5);
    gc();
  }
  return references.filter((reference) => reference.deref() !== undefined).length;
}

@Injectable()
class Noting implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler) {
    const name = context.getHandler().name;
    note(contexts, name, context);
    note(requests, name, context.getArgByIndex<object>(0));
    return next.handle();
  }
}

@Injectable()
class Mailer {
  /** Called by every handler: a guarded service inside the request. */
  @LockWith(arg(0))
  async send(_id: string): Promise<void> {
    leaveBehind();
  }
}

@Controller()
class Pages {
  constructor(private readonly mailer: Mailer) {}

  @RateLimit({ max: 1_000_000, per: 60 })
  @LockWith(arg(0))
  @Get('guarded/:id')
  async guarded(@Param('id') id: string): Promise<{ readonly id: string }> {
    leaveBehind();
    await this.mailer.send(id);
    leaveBehind();
    const value = { id };
    values.push(new WeakRef(value));
    return value;
  }

  @LockWith(arg(0))
  @Get('failing/:id')
  async failing(@Param('id') id: string): Promise<void> {
    leaveBehind();
    const error = new NotFoundException(id);
    values.push(new WeakRef(error));
    throw error;
  }

  @Get('unguarded/:id')
  async unguarded(@Param('id') id: string): Promise<{ readonly id: string }> {
    leaveBehind();
    await this.mailer.send(id);
    leaveBehind();
    return { id };
  }

  /** The control: what a leak looks like to this measurement. */
  @RateLimit({ max: 1_000_000, per: 60 })
  @Get('leaking/:id')
  async leaking(@Param('id') id: string): Promise<{ readonly id: string }> {
    const context = currentInvocation()?.context;
    leaveBehind(() => void context);
    return { id };
  }
}

async function retainedContexts(): Promise<unknown> {
  const testing = await Test.createTestingModule({
    imports: [CmdxModule.forRoot()],
    controllers: [Pages],
    providers: [Mailer, { provide: APP_INTERCEPTOR, useClass: Noting }],
  }).compile();
  const app = testing.createNestApplication<NestFastifyApplication>(new FastifyAdapter());
  await app.init();
  const ask = async (name: string, times: number, expected = 200): Promise<void> => {
    for (let id = 0; id < times; id++) {
      const { statusCode } = await app.inject(`/${name}/${id}`);
      if (statusCode !== expected) throw new Error(`${name} answered ${statusCode}`);
    }
  };
  await ask('guarded', REQUESTS);
  await ask('unguarded', REQUESTS);
  await ask('failing', 100, 404);
  await ask('leaking', 100);
  const answer = {
    pending: intervals.length,
    guarded: await alive(contexts.get('guarded')),
    guardedRequests: await alive(requests.get('guarded')),
    unguarded: await alive(contexts.get('unguarded')),
    unguardedRequests: await alive(requests.get('unguarded')),
    values: await alive(values),
    leaking: await alive(contexts.get('leaking')),
  };
  intervals.splice(0).forEach(clearInterval);
  await app.close();
  return answer;
}

@Injectable()
class Perpetual {
  readonly links: WeakRef<object>[] = [];
  left = 0;
  reached: () => void = () => undefined;
  #release: Promise<void> | undefined;

  constructor(private readonly cmdx: Cmdx) {}

  /** The next link starts while this one still runs, and nobody waits for it. */
  @LockWith(arg(0))
  async direct(link: number): Promise<void> {
    await this.#grow(() => void this.direct(link + 1));
  }

  @LockWith(arg(0))
  async executed(link: number): Promise<void> {
    await this.#grow(() => void this.cmdx.execute(() => this.executed(link + 1)));
  }

  @LockWith(arg(0))
  async scheduled(link: number): Promise<void> {
    await this.#grow(() => void setImmediate(() => void this.scheduled(link + 1)));
  }

  async #grow(next: () => void): Promise<void> {
    this.links.push(new WeakRef(currentInvocation() as object));
    await Promise.resolve();
    if (this.left-- > 0) next();
    else await this.#lastLink();
    // Lets the event loop breathe, as real work does.
    if (this.left % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
  }

  async #lastLink(): Promise<void> {
    this.reached();
    await this.#release;
  }

  /** How many of the invocations are still in memory while the last one still runs. */
  async measure(method: 'direct' | 'executed' | 'scheduled'): Promise<number> {
    this.links.length = 0;
    this.left = LINKS;
    let release = (): void => undefined;
    this.#release = new Promise((resolve) => (release = resolve));
    const reached = new Promise<void>((resolve) => (this.reached = resolve));
    void this[method](0);
    await reached;
    const count = await alive(this.links);
    release();
    return count;
  }
}

async function retainedChain(): Promise<unknown> {
  const app = await NestFactory.createApplicationContext(
    {
      module: class ChainModule {},
      imports: [CmdxModule.forRoot()],
      providers: [Perpetual],
    },
    { logger: false },
  );
  const perpetual = app.get(Perpetual);
  const answer = {
    direct: await perpetual.measure('direct'),
    executed: await perpetual.measure('executed'),
    scheduled: await perpetual.measure('scheduled'),
  };
  await app.close();
  return answer;
}

@Injectable()
class Busy {
  readonly door = new Door();

  @LockWith('one', { wait: 60 })
  async run(): Promise<void> {
    await this.door.pass();
  }
}

/** Handles before an application under load was made, and after it has been closed. */
async function handlesAfterClose(): Promise<unknown> {
  const before = process.getActiveResourcesInfo();
  const app = await NestFactory.createApplicationContext(
    { module: class BusyModule {}, imports: [CmdxModule.forRoot()], providers: [Busy] },
    { logger: false },
  );
  const busy = app.get(Busy);
  const [running, ...waiting] = Array.from({ length: 20 }, () => busy.run());
  await until(() => busy.door.inside === 1, 'the first call');
  const closing = app.close();
  const refused = await Promise.allSettled(waiting);
  busy.door.open();
  const settled = [...refused, ...(await Promise.allSettled([running]))];
  await closing;
  return {
    before,
    after: process.getActiveResourcesInfo(),
    finished: settled.filter(({ status }) => status === 'fulfilled').length,
  };
}

@Injectable()
class Misconfigured {
  @LockWith(arg(0), { if: 'noSuchMethod' })
  async run(_id: string): Promise<void> {}
}

/** Handles before an application failed to compile, and after; its store would be a Redis. */
async function handlesAfterFailure(): Promise<unknown> {
  const before = process.getActiveResourcesInfo();
  let failure = '';
  for (const store of [undefined, new RedisStore({ url: 'redis://127.0.0.1:1' })]) {
    const compiling = Test.createTestingModule({
      imports: [CmdxModule.forRoot(store ? { store } : {})],
      providers: [Misconfigured],
    }).compile();
    await compiling.catch((error: Error) => (failure = error.name));
  }
  return { before, after: process.getActiveResourcesInfo(), failure };
}

const SCENARIOS: Readonly<Record<string, () => Promise<unknown>>> = {
  retainedContexts,
  retainedChain,
  handlesAfterClose,
  handlesAfterFailure,
};

const answer = await SCENARIOS[process.argv[2] ?? '']?.();
process.send?.(answer, () => process.disconnect());
