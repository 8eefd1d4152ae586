import { ClsTransactions, type ClsTransactionHost } from 'nestjs-cmdx/row-lock';
import { ROW_LOCK_ADAPTERS, type OpenRowLockAdapter } from './row-lock-adapters.js';

type ByNode = <Module>(name: string) => Promise<Module>;

const LIBRARY = 'the database library';

/** The same adapters, their transactions shared with `@Transactional()` of nestjs-cls. */
export const CLS_ADAPTERS: Readonly<Record<string, OpenRowLockAdapter>> = {
  'nestjs-cls over TypeORM': (...asked) => openOver('TypeORM', ...asked),
  'nestjs-cls over Prisma': (...asked) => openOver('Prisma', ...asked),
};

async function openOver(
  name: 'TypeORM' | 'Prisma',
  ...asked: Parameters<OpenRowLockAdapter>
): ReturnType<OpenRowLockAdapter> {
  const adapter = await (ROW_LOCK_ADAPTERS[name] as OpenRowLockAdapter)(...asked);
  const { host, within, close } = await openHost(name, adapter.library);
  return {
    ...adapter,
    transactions: new ClsTransactions(host),
    within,
    async close() {
      await close();
      await adapter.close();
    },
  };
}

/**
 * An application of Nest for nestjs-cls alone. Jest does not load nestjs-cls beside a Nest of ES
 * modules, so Node does, and gives it another copy of Nest than the tests have: what both share is
 * the database library and, of nestjs-cls, the `TransactionHost`.
 */
async function openHost(name: 'TypeORM' | 'Prisma', library: object) {
  const { importByNode } = globalThis as unknown as { readonly importByNode: ByNode };
  // One after the other: while Node imports a module nobody else may require it.
  const core = await importByNode<typeof import('@nestjs/core')>('@nestjs/core');
  const { ClsModule } = await importByNode<typeof import('nestjs-cls')>('nestjs-cls');
  const transactional = await importByNode<typeof import('@nestjs-cls/transactional')>(
    '@nestjs-cls/transactional',
  );
  const { ClsPluginTransactional, Transactional, TransactionHost } = transactional;

  class LibraryModule {}
  const imports = [
    {
      module: LibraryModule,
      providers: [{ provide: LIBRARY, useValue: library }],
      exports: [LIBRARY],
    },
  ];
  class RootModule {}
  const plugin = new ClsPluginTransactional({
    imports,
    adapter: (await adapterOf(name, importByNode)) as never,
  });
  const root = { module: RootModule, imports: [ClsModule.forRoot({ plugins: [plugin] })] };
  const app = await core.NestFactory.createApplicationContext(root, {
    logger: ['error'],
    abortOnError: false,
  });

  class Service {
    @Transactional()
    run<T>(body: () => Promise<T>): Promise<T> {
      return body();
    }
  }
  const service = new Service();
  return {
    host: app.get<ClsTransactionHost>(TransactionHost, { strict: false }),
    within: <T>(body: () => Promise<T>): Promise<T> => service.run(body),
    close: () => app.close(),
  };
}

async function adapterOf(name: 'TypeORM' | 'Prisma', importByNode: ByNode): Promise<object> {
  if (name === 'TypeORM') {
    const { TransactionalAdapterTypeOrm } = await importByNode<
      typeof import('@nestjs-cls/transactional-adapter-typeorm')
    >('@nestjs-cls/transactional-adapter-typeorm');
    return new TransactionalAdapterTypeOrm({ dataSourceToken: LIBRARY });
  }
  const { TransactionalAdapterPrisma } = await importByNode<
    typeof import('@nestjs-cls/transactional-adapter-prisma')
  >('@nestjs-cls/transactional-adapter-prisma');
  return new TransactionalAdapterPrisma({
    prismaInjectionToken: LIBRARY,
    sqlFlavor: 'postgresql',
  });
}
