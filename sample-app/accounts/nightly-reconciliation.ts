import { Injectable, Logger } from '@nestjs/common';
import { Cron, CronExpression } from '@nestjs/schedule';
import { Cmdx, IdempotentBy } from 'nestjs-cmdx';
import { Accounts } from './accounts.js';

@Injectable()
export class NightlyReconciliation {
  readonly #logger = new Logger(NightlyReconciliation.name);

  constructor(
    private readonly cmdx: Cmdx,
    private readonly accounts: Accounts,
  ) {}

  /** Once a night, however many replicas the scheduler wakes: the key is the night's date. */
  @Cron(CronExpression.EVERY_DAY_AT_2AM, { timeZone: 'UTC' })
  @IdempotentBy(() => new Date().toISOString().slice(0, 10), {
    onDuplicate: 'skip',
    onInProgress: 'skip',
    onAbandoned: 'rerun',
  })
  async run(): Promise<void> {
    for (const accountId of this.accounts.ids) {
      const result = await this.cmdx.execute(() => this.accounts.reconcile(accountId));
      this.#logger.log(`${accountId}: ${result.reason ?? result.status}`);
    }
  }
}
