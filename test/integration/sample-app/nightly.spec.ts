import { describe, expect, it } from '@jest/globals';
import { SchedulerRegistry } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { Cmdx, MemoryStore, Store, Telemetry } from 'nestjs-cmdx';
import { Accounts } from '../../../sample-app/accounts/accounts.js';
import { Bank } from '../../../sample-app/accounts/bank.js';
import { NightlyReconciliation } from '../../../sample-app/accounts/nightly-reconciliation.js';
import { AppModule } from '../../../sample-app/app.module.js';

describe('does the nightly job of the sample application', () => {
  async function boot() {
    const asked: string[] = [];
    const module = await Test.createTestingModule({ imports: [AppModule] })
      .overrideProvider(Store)
      .useValue(new MemoryStore())
      .overrideProvider(Bank)
      .useValue({
        balanceOf: async (accountId: string) => {
          asked.push(accountId);
          await new Promise(setImmediate);
          return 0;
        },
      })
      .compile();
    const app = await module.createNestApplication({ logger: ['error'] }).init();
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
    cron?.fireOnTick();
    await done;
    expect(asked).toEqual(app.get(Accounts).ids);
    await app.close();
  });

  it('step aside when another run is under way?', async () => {
    const { app, asked, job } = await boot();
    const first = job.run();
    const second = await app.get(Cmdx).execute(() => job.run());
    expect(second).toMatchObject({ status: 'skipped', metadata: { code: 'busy' } });
    await first;
    expect(asked).toHaveLength(3);
    await app.close();
  });

  it('go on with the next account when one is busy?', async () => {
    const { app, asked, job } = await boot();
    const other = app.get(Accounts).reconcile('acct_41');
    await job.run();
    await other;
    expect(asked.toSorted()).toEqual(['acct_41', 'acct_42', 'acct_43']);
    await app.close();
  });
});
