import 'reflect-metadata';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import {
  arg,
  currentInvocation,
  currentTransaction,
  RowLocks,
  RowMissingError,
  type RowTarget,
  WithRowLock,
} from 'nestjs-cmdx';
import {
  type IsolationLevel,
  PgTransactions,
  PrismaTransactions,
  TypeOrmTransactions,
} from 'nestjs-cmdx/row-lock';
import { Pool } from 'pg';
import {
  Column,
  DataSource,
  DeleteDateColumn,
  Entity,
  type EntityManager,
  JoinColumn,
  ManyToOne,
  PrimaryColumn,
} from 'typeorm';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { borrowPostgres, type PostgresDatabases } from '../../support/postgres-server.js';
import { openPrisma, PRISMA_TABLES } from '../../support/prisma-client.js';

closeApplicationsAfterEach();

@Entity('customers')
class Customer {
  @PrimaryColumn('text')
  id!: string;
}

@Entity('orders', { schema: 'public' })
class Order {
  @PrimaryColumn('bigint')
  id!: string;

  @Column('text')
  status!: string;

  @ManyToOne(() => Customer, { eager: true, nullable: true })
  @JoinColumn({ name: 'customer_id' })
  customer!: Customer | null;

  @DeleteDateColumn({ name: 'deleted_at' })
  deletedAt!: Date | null;
}

let databases: PostgresDatabases;
let url: string;
let pool: Pool;
let dataSource: DataSource;
let prisma: Awaited<ReturnType<typeof openPrisma>>;

beforeAll(async () => {
  databases = await borrowPostgres();
  url = await databases.createDatabase();
  pool = new Pool({ connectionString: url });
  await pool.query(PRISMA_TABLES);
  await pool.query(
    `CREATE TABLE customers (id text PRIMARY KEY);
     CREATE TABLE orders (id bigint PRIMARY KEY, status text NOT NULL, customer_id text REFERENCES customers, deleted_at timestamptz)`,
  );
  dataSource = await new DataSource({
    type: 'postgres',
    url,
    entities: [Customer, Order],
  }).initialize();
  prisma = await openPrisma(url);
}, 60_000);

afterAll(async () => {
  await prisma.$disconnect();
  await dataSource.destroy();
  await pool.end();
  await databases.stop();
});

async function locksOf(
  rowLock: PgTransactions | TypeOrmTransactions | PrismaTransactions,
): Promise<RowLocks> {
  return (await boot({}, { rowLock })).get(RowLocks);
}

const ADAPTERS = {
  pg: (isolationLevel?: IsolationLevel) => new PgTransactions({ pool, ...level(isolationLevel) }),
  TypeORM: (isolationLevel?: IsolationLevel) =>
    new TypeOrmTransactions({ dataSource, ...level(isolationLevel) }),
  Prisma: (isolationLevel?: IsolationLevel) =>
    new PrismaTransactions({ client: prisma, ...level(isolationLevel) }),
};

function level(isolationLevel: IsolationLevel | undefined) {
  return isolationLevel === undefined ? {} : { isolationLevel };
}

describe.each(Object.entries(ADAPTERS))('how isolated is a transaction of %s?', (_name, open) => {
  beforeEach(async () => {
    await pool.query("TRUNCATE orders; INSERT INTO orders VALUES (1, 'new')");
  });

  it.each(['read committed', 'repeatable read', 'serializable'] as const)(
    'as it is told: %s',
    async (isolationLevel) => {
      const transactions = open(isolationLevel);
      const locks = await locksOf(transactions);
      const seen = await locks.withLock('orders', 1, (_row, tx) =>
        transactions.query(
          tx as never,
          "SELECT current_setting('transaction_isolation') AS is",
          [],
        ),
      );
      expect(seen).toEqual([{ is: isolationLevel }]);
    },
  );

  it('no level but those of Postgres is taken', () => {
    expect(() => open('chaos' as IsolationLevel)).toThrow(
      /new \w+Transactions\(\) option "isolationLevel": expected one of read committed, .*, got "chaos"/,
    );
  });
});

describe('an entity of TypeORM', () => {
  beforeEach(async () => {
    await pool.query(
      "TRUNCATE orders, customers; INSERT INTO customers VALUES ('ada'); INSERT INTO orders VALUES (1, 'new', 'ada', NULL), (2, 'new', NULL, NULL), (3, 'new', NULL, now())",
    );
  });

  it('is locked with its eager relations read, which a lock on a join could not', async () => {
    const locks = await locksOf(ADAPTERS.TypeORM());
    const names = await locks.withLock(Order, [1, 2], (orders) =>
      orders.map(({ customer }) => customer?.id),
    );
    expect(names).toEqual(['ada', undefined]);
  });

  it('that is deleted softly is missing', async () => {
    const locks = await locksOf(ADAPTERS.TypeORM());
    const ask = (id: number | number[]): Promise<unknown> =>
      locks.withLock(Order, id as number, () => 'run');
    await expect(ask(3)).rejects.toBeInstanceOf(RowMissingError);
    await expect(ask([2, 3])).rejects.toBeInstanceOf(RowMissingError);
    const row = locks.withLock(Order, 3, (order) => order ?? 'none', { onMissing: 'run' });
    await expect(row).resolves.toBe('none');
  });

  it('is saved through the manager of the transaction', async () => {
    const locks = await locksOf(ADAPTERS.TypeORM());
    await locks.withLock(Order, 1, async (order, manager: EntityManager) => {
      expect(manager).toBe(currentTransaction());
      order.status = 'sent';
      await manager.save(order);
    });
    const { rows } = await pool.query('SELECT status FROM orders WHERE id = 1');
    expect(rows).toEqual([{ status: 'sent' }]);
  });
});

describe('a connection that is made for a call', () => {
  class Orders {
    @WithRowLock('orders', arg(0), { onMissing: 'run' })
    async pay(_id: number): Promise<unknown> {
      return currentInvocation()?.task;
    }
  }

  async function tasksOfConnections(
    rowLock: PgTransactions | TypeOrmTransactions,
    connections: Pool,
  ): Promise<unknown[]> {
    const tasks: unknown[] = [];
    connections.on('connect', () => tasks.push(currentInvocation()?.task));
    const app = await boot({ providers: [Orders] }, { rowLock });
    await expect(app.get(Orders).pay(1)).resolves.toBe('Orders.pay');
    return tasks;
  }

  it('does not belong to it, with pg', async () => {
    const own = new Pool({ connectionString: url });
    const tasks = await tasksOfConnections(new PgTransactions({ pool: own }), own);
    expect(tasks).toEqual([undefined]);
    await own.end();
  });

  it('does not belong to it, with TypeORM', async () => {
    const source = await new DataSource({ type: 'postgres', url }).initialize();
    const own = (source.driver as unknown as { readonly master: Pool }).master;
    const first = await own.connect();
    const tasks = await tasksOfConnections(new TypeOrmTransactions({ dataSource: source }), own);
    expect(tasks).toEqual([undefined]);
    first.release();
    await source.destroy();
  });
});

describe('what the library does not know is refused at boot', () => {
  const bootWith = async (
    rowLock: PgTransactions | TypeOrmTransactions | PrismaTransactions,
    target: RowTarget,
  ): Promise<unknown> => {
    class Orders {
      @WithRowLock(target, arg(0))
      async pay(_id: string): Promise<void> {}
    }
    return boot({ providers: [Orders] }, { rowLock });
  };

  it.each([
    [
      ADAPTERS.pg,
      Order,
      /Orders\.pay: @WithRowLock: expected a table, got .*Order.*PgTransactions knows no/,
    ],
    [ADAPTERS.pg, { model: 'Invoice' }, /Orders\.pay: @WithRowLock: expected a table/],
    [ADAPTERS.TypeORM, class Stranger {}, /Orders\.pay: .*an entity of the data source.*Stranger/],
    [ADAPTERS.TypeORM, { model: 'Invoice' }, /Orders\.pay: .*TypeORM has no models/],
    [ADAPTERS.Prisma, { model: 'Ship' }, /Orders\.pay: .*one of the models \(.*Invoice.*"Ship"/],
    [ADAPTERS.Prisma, { model: 'Seat' }, /Orders\.pay: .*a field of Seat \(flight, .*"id"/],
    [ADAPTERS.Prisma, Order, /Orders\.pay: .*Prisma has no entity classes/],
  ])('%p %p', async (open, target, message) => {
    await expect(bootWith(open(), target)).rejects.toThrow(message);
  });

  it('or with the first call, where the data source is not open yet', async () => {
    const later = new DataSource({
      type: 'postgres',
      url,
    });
    await expect(
      bootWith(new TypeOrmTransactions({ dataSource: later }), Order),
    ).resolves.toBeDefined();
  });
});

describe('a model of Prisma', () => {
  it.each([
    ['Account', '12', { id: 12n, balanceCents: 5n }],
    ['Account', 12n, { id: 12n, balanceCents: 5n }],
    ['Payment', '0190A0F0-1111-7000-8000-000000000001', { amountCents: 5 }],
    ['Invoice', '1', { id: 1, status: 'open' }],
  ])('%s is found by %p, as the client wants to be asked', async (model, id, row) => {
    await pool.query(
      `TRUNCATE accounts, invoices, payments;
       INSERT INTO accounts VALUES (12, 5); INSERT INTO invoices VALUES (1, 5);
       INSERT INTO payments VALUES ('0190a0f0-1111-7000-8000-000000000001', 1, 5)`,
    );
    const locks = await locksOf(ADAPTERS.Prisma());
    const found = await locks.withLock({ model }, id, (each) => each);
    expect(found).toMatchObject(row);
  });
});
