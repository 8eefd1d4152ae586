import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import {
  CmdxModule,
  type Invocation,
  LockWith,
  MemoryStore,
  RateLimit,
  type Result,
  Store,
  input,
} from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { PgTransactions, RowLocks, WithRowLock } from 'nestjs-cmdx/row-lock';
import { ManualClock, withoutPolicies } from 'nestjs-cmdx/testing';
import 'nestjs-cmdx/testing/bypass';

/** Never run: it has to compile, and what must not compile has to fail. */
@Injectable()
export class Accounts {
  @LockWith((id: string) => id)
  @RateLimit({ max: 2, per: '1m' })
  async reconcile(id: string): Promise<string> {
    return id;
  }

  @RateLimit(input('id'), { max: 2, per: 60, limiter: 'leaky_bucket' })
  async close(order: { id: string }): Promise<string> {
    return order.id;
  }

  @WithRowLock('accounts', (id: string) => id, { wait: 0 })
  async lockRow(id: string): Promise<string> {
    return id;
  }

  // @ts-expect-error a guarded method is asynchronous
  @LockWith((id: string) => id)
  synchronous(id: string): string {
    return id;
  }

  // @ts-expect-error the key takes what the method takes
  @LockWith((id: number) => id)
  async otherKey(id: string): Promise<string> {
    return id;
  }
}

export const stores: Store[] = [
  new MemoryStore(),
  new RedisStore({ url: 'redis://127.0.0.1' }),
  new RedisStore({ client: new Redis({ lazyConnect: true }) }),
];

export const modules = [
  CmdxModule.forRoot({ store: new MemoryStore(), clock: new ManualClock(0) }),
  CmdxModule.forRootAsync({ useFactory: () => ({ store: new MemoryStore() }) }),
];

// @ts-expect-error no such option
CmdxModule.forRoot({ stroe: new MemoryStore() });

export const pool = {
  connect: async (): Promise<never> => {
    throw new Error('never run');
  },
};
CmdxModule.forRoot({ rowLock: new PgTransactions({ pool }) });

export const rename = (locks: RowLocks): Promise<string> =>
  locks.withLock('accounts', ['a', 'b'], (rows: { name: string }[]) => rows[0]?.name ?? '');

export const bare: Accounts = withoutPolicies(new Accounts());

export function describe(result: Result<string>, invocation: Invocation): string {
  return `${invocation.task}: ${result.value ?? result.reason ?? result.status}`;
}
