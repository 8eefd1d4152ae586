import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { SchedulerRegistry } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { Cmdx, MemoryStore, Store, Telemetry } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { Accounts } from '../../../sample-app/accounts/accounts.js';
import { Bank } from '../../../sample-app/accounts/bank.js';
import { NightlyReconciliation } from '../../../sample-app/accounts/nightly-reconciliation.js';
import { AppModule } from '../../../sample-app/app.module.js';
import { stopDate } from '../../support/dates.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

describe('does the nightly job of the sample application', () => {
  const open: INestApplication[] = [];

  beforeEach(() => {
    stopDate('2026-03-28T02:00:00Z');
  });
  afterEach(async () => {
    jest.useRealTimers();
    for (const app of open.splice(0)) await app.close();
  });

  async function boot(
    store: Store = new MemoryStore(),
    asked: string[] = [],
    statement: () => Promise<unknown> = () => new Promise(setImmediate),
  ) {
    const module = await Test.createTestingModule({ imports: [AppModule] })
      .overrideProvider(Store)
      .useValue(store)
      .overrideProvider(Bank)
      .useValue({
        balanceOf: async (accountId: string) => {
          asked.push(accountId);
          await statement();
          return 0;
        },
      })
      .compile();
    const app = await module.createNestApplication({ logger: ['error'] }).init();
    open.push(app);
    return { app, asked, job: app.get(NightlyReconciliation) };
  }

  it('reconcile every account once when the scheduler fires it?', async () => {
    const { app, asked } = await boot();
    const done = new Promise((resolve) =>
      app.get(Telemetry).subscribe('task_executed', ({ task }) => {
        if (task === 'NightlyReconciliation.run') resolve(undefined);
      }),
    );
    const [cron] = [...app.get(SchedulerRegistry).getCronJobs().values()];
    expect(cron?.cronTime.timeZone).toBe('UTC');
    cron?.fireOnTick();
    await done;
    expect(asked).toEqual(app.get(Accounts).ids);
  });

  it('run once a night, and again the next?', async () => {
    const { app, asked, job } = await boot();
    await job.run();
    stopDate('2026-03-28T23:59:59Z');
    const again = await app.get(Cmdx).execute(() => job.run());
    expect(again).toMatchObject({ status: 'skipped', metadata: { code: 'duplicate' } });
    expect(asked).toHaveLength(3);

    stopDate('2026-03-29T02:00:00Z');
    await job.run();
    expect(asked).toHaveLength(6);
  });

  it('run in one of several replicas, awake together or later?', async () => {
    const server: RedisServer = await startRedis();
    try {
      const asked: string[] = [];
      let statesBalances: (() => void) | undefined;
      const statement = new Promise<void>((resolve) => (statesBalances = resolve));
      const replicas = await Promise.all(
        [1, 2, 3].map(() => boot(new RedisStore({ url: server.url }), asked, () => statement)),
      );
      const codes: string[] = [];
      const night = () =>
        Promise.all(
          replicas.map(async ({ app, job }) => {
            const { status, reason } = await app.get(Cmdx).execute(() => job.run());
            // The bank answers once the replicas that did not get the job are home.
            if (codes.push(reason ?? status) === 2) statesBalances?.();
          }),
        );
      await night();
      expect(codes.splice(0)).toEqual(['in_progress', 'in_progress', 'success']);
      await night();
      expect(codes).toEqual(['duplicate', 'duplicate', 'duplicate']);
      expect(asked).toHaveLength(3);
      for (const app of open.splice(0)) await app.close();
    } finally {
      await server.stop();
    }
  }, 20_000);

  it('go on with the next account when one is busy?', async () => {
    const { app, asked, job } = await boot();
    const other = app.get(Accounts).reconcile('acct_41');
    await job.run();
    await other;
    expect(asked.toSorted()).toEqual(['acct_41', 'acct_42', 'acct_43']);
  });
});
