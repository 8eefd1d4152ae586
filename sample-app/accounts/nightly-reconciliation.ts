import { Injectable, Logger } from '@nestjs/common';
import { Cron, CronExpression } from '@nestjs/schedule';
import { Cmdx, LockWith } from 'nestjs-cmdx';
import { Accounts } from './accounts.js';

@Injectable()
export class NightlyReconciliation {
  readonly #logger = new Logger(NightlyReconciliation.name);

  constructor(
    private readonly cmdx: Cmdx,
    private readonly accounts: Accounts,
  ) {}

  @Cron(CronExpression.EVERY_DAY_AT_2AM)
  @LockWith('nightly', { onBusy: 'skip' })
  async run(): Promise<void> {
    for (const accountId of this.accounts.ids) {
      const result = await this.cmdx.execute(() => this.accounts.reconcile(accountId));
      this.#logger.log(`${accountId}: ${result.reason ?? result.status}`);
    }
  }
}
