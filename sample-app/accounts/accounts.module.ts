import { Module } from '@nestjs/common';
import { AccountsController } from './accounts.controller.js';
import { Accounts } from './accounts.js';
import { Bank } from './bank.js';
import { NightlyReconciliation } from './nightly-reconciliation.js';

@Module({
  controllers: [AccountsController],
  providers: [Accounts, Bank, NightlyReconciliation],
  exports: [Accounts],
})
export class AccountsModule {}
