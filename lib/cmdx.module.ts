import {
  type BeforeApplicationShutdown,
  type DynamicModule,
  Inject,
  Logger,
  Module,
  type OnApplicationShutdown,
  type OnModuleInit,
} from '@nestjs/common';
import { ApplicationConfig, HttpAdapterHost, ModulesContainer } from '@nestjs/core';
import { isThenable } from './awaitable.js';
import { assertOptionsNeedNoGuardedClass } from './boot/options-dependencies.js';
import { Explorer } from './boot/explorer.js';
import { ApplicationPlanner } from './boot/planner.js';
import { ResolverRegistry } from './boot/resolver-registry.js';
import { CmdxInterceptor } from './cmdx.interceptor.js';
import {
  type ASYNC_OPTIONS_TYPE,
  CMDX_MODULE_OPTIONS,
  ConfigurableModuleClass,
  type OPTIONS_TYPE,
} from './cmdx.module-definition.js';
import { type CmdxModuleOptions, type ResolvedOptions, resolveOptions } from './cmdx.options.js';
import { CMDX_RUNTIME } from './envelope/binding.js';
import { Cmdx } from './envelope/cmdx.js';
import { Runtime } from './envelope/runtime.js';
import { DefinitionError, show } from './errors/definition.error.js';
import { describeThrown } from './errors/reading.js';
import { isStoreError } from './errors/store.error.js';
import { askerHere } from './envelope/row-lock.js';
import { outside } from './process-wide.js';
import { RowLocks } from './row-lock/row-locks.js';
import type { RowTarget } from './row-lock/target.js';
import { CircuitBreakers } from './store/circuit-breakers.js';
import { IdempotencyRecords } from './store/idempotency-records.js';
import { MemoryStore } from './store/memory/memory.store.js';
import { Store } from './store/store.js';
import { Telemetry } from './telemetry/telemetry.js';
import { RefusalFilter } from './transport/refusal.filter.js';

/** Marks the module's class, so that the ESM and the CJS copy of it are seen to be the same. */
const CMDX_MODULE: unique symbol = Symbol.for('cmdx:module') as never;
const RESOLVED_OPTIONS = Symbol('CmdxModule options');
const logger = new Logger('CmdxModule');

/**
 * Guards the decorated methods of an application. Import it once, in the root module:
 * `CmdxModule.forRoot()` or `CmdxModule.forRootAsync({ inject, useFactory })`. It is global.
 */
@Module({
  providers: [
    {
      provide: RESOLVED_OPTIONS,
      useFactory: resolveOptions,
      inject: [CMDX_MODULE_OPTIONS],
    },
    {
      provide: Store,
      useFactory: (options: ResolvedOptions) => options.store ?? new MemoryStore(),
      inject: [RESOLVED_OPTIONS],
    },
    Telemetry,
    ResolverRegistry,
    {
      provide: ApplicationPlanner,
      useFactory: makePlanner,
      inject: [RESOLVED_OPTIONS, ResolverRegistry],
    },
    {
      provide: CMDX_RUNTIME,
      useFactory: makeRuntime,
      inject: [RESOLVED_OPTIONS, Store, Telemetry, ApplicationPlanner],
    },
    Cmdx,
    {
      provide: CircuitBreakers,
      useFactory: (store: Store) => new CircuitBreakers(store),
      inject: [Store],
    },
    {
      provide: IdempotencyRecords,
      useFactory: (store: Store) => new IdempotencyRecords(store),
      inject: [Store],
    },
    {
      provide: RowLocks,
      useFactory: (options: ResolvedOptions) => new RowLocks(options.rowLock, askerHere),
      inject: [RESOLVED_OPTIONS],
    },
  ],
  exports: [CMDX_RUNTIME, CircuitBreakers, Cmdx, IdempotencyRecords, RowLocks, Store, Telemetry],
})
export class CmdxModule
  extends ConfigurableModuleClass
  implements OnModuleInit, BeforeApplicationShutdown, OnApplicationShutdown
{
  static readonly [CMDX_MODULE] = true;
  readonly #explorer: Explorer;

  constructor(
    modules: ModulesContainer,
    config: ApplicationConfig,
    adapterHost: HttpAdapterHost,
    private readonly planner: ApplicationPlanner,
    private readonly resolvers: ResolverRegistry,
    private readonly store: Store,
    private readonly telemetry: Telemetry,
    @Inject(CMDX_RUNTIME) private readonly runtime: Runtime,
    @Inject(RESOLVED_OPTIONS) private readonly options: ResolvedOptions,
  ) {
    super();
    this.#explorer = new Explorer(modules);
    if (this.#explorer.countModules(CMDX_MODULE) > 1) {
      throw new DefinitionError(
        'CmdxModule.forRoot(): expected to be imported once, got several; it is global, so import it in the root module only',
      );
    }
    // Routes are registered after the modules are made, so what is wrapped here is what they see.
    for (const target of this.#explorer.decoratedClasses()) this.planner.adopt(target);
    // Outside every interceptor of the user, whose APP_INTERCEPTORs are added later.
    config.addGlobalInterceptor(new CmdxInterceptor(this.runtime, this.planner, adapterHost));
    // Asked last: any filter of the user that catches a refusal wins.
    config.addGlobalFilter(new RefusalFilter(adapterHost));
  }

  /**
   * @param options see {@link CmdxModuleOptions}
   * @throws DefinitionError for an unknown option or one of the wrong kind
   */
  static override forRoot(options: typeof OPTIONS_TYPE = {}): DynamicModule {
    resolveOptions(options as CmdxModuleOptions);
    return super.forRoot(options);
  }

  /** @throws DefinitionError when what the options depend on is guarded itself */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    assertOptionsNeedNoGuardedClass(options);
    return super.forRootAsync(options);
  }

  onModuleInit(): void {
    this.resolvers.verify();
    this.#explorer.attach(this.runtime);
    this.options.telemetry.forEach((listener) => listener.listen(this.telemetry));
    this.#explorer.subscribe(this.telemetry);
    if (this.store.processLocal && process.env['NODE_ENV'] === 'production') {
      this.planner.warnOnce(
        'The store coordinates this process only; give forRoot() a shared one if there are several.',
      );
    }
    outside(() => void this.#greetStore());
  }

  /** The boot never waits for the store: one that is down is told, and refused call by call. */
  async #greetStore(): Promise<void> {
    try {
      this.store.open();
      await this.store.get(GREETING);
    } catch (error) {
      if (isStoreError(error) && error.reason === 'closed') return;
      this.planner.warnOnce(
        `The store does not answer (${describeThrown(error)}); until it does, guarded calls are refused as store_unavailable.`,
      );
    }
  }

  async beforeApplicationShutdown(): Promise<void> {
    await this.runtime.shutDown();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.store.close();
  }
}

/** Any key does: what matters is whether the store answers. */
const GREETING = 'cmdx:boot';

function makePlanner(options: ResolvedOptions, lookup: ResolverRegistry): ApplicationPlanner {
  const { defaults, limiters, jitters, warnings } = options;
  const { rowLock } = options;
  const checkTarget =
    rowLock &&
    ((target: RowTarget, site: string): void => {
      if (rowLock.knowsTables) rowLock.tableOf(target, site);
    });
  const context = { defaults, limiters, jitters, lookup, checkTarget };
  const planner = new ApplicationPlanner(context, (message) => logger.warn(message));
  warnings.forEach(planner.warnOnce);
  return planner;
}

function makeRuntime(
  options: ResolvedOptions,
  store: Store,
  telemetry: Telemetry,
  planner: ApplicationPlanner,
): Runtime {
  const { clock, storeTimeoutMs, shutdownTimeoutMs, correlationId } = options;
  store.useClock(clock);
  store.useTimeout(storeTimeoutMs);
  return new Runtime({
    store,
    telemetry,
    clock,
    planner,
    transactions: options.rowLock,
    storeTimeoutMs,
    shutdownTimeoutMs,
    correlationId: correlationId && harmless(correlationId, planner.warnOnce),
  });
}

const CORRELATION_ID = 'CmdxModule.forRoot() option "correlationId"';

/** An id for logs must not decide over a call: a resolver that throws, or answers no text, is told once. */
function harmless(
  correlationId: NonNullable<ResolvedOptions['correlationId']>,
  warnOnce: (message: string) => void,
): NonNullable<ResolvedOptions['correlationId']> {
  const told = new Set<'answered' | 'threw'>();
  // What it answers or throws may be another text each time: only the first is told.
  const tellOnce = (kind: 'answered' | 'threw', message: string): void => {
    if (told.has(kind)) return;
    told.add(kind);
    warnOnce(message);
  };
  return (context) => {
    try {
      const answer: unknown = correlationId(context) ?? undefined;
      if (answer === undefined || typeof answer === 'string') return answer;
      // A promise that nobody waits for would end the process when it rejects.
      if (isThenable(answer)) answer.then(undefined, () => undefined);
      tellOnce(
        'answered',
        `${CORRELATION_ID}: expected a string or undefined, got ${show(answer)}`,
      );
    } catch (error) {
      tellOnce('threw', `${CORRELATION_ID} threw: ${describeThrown(error)}`);
    }
    return undefined;
  };
}
