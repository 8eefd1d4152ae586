import { Controller, HttpCode, HttpStatus, Param, Post } from '@nestjs/common';
import { Accounts, type Reconciliation } from './accounts.js';

@Controller('accounts')
export class AccountsController {
  constructor(private readonly accounts: Accounts) {}

  @Post(':accountId/reconcile')
  @HttpCode(HttpStatus.OK)
  reconcile(@Param('accountId') accountId: string): Promise<Reconciliation> {
    return this.accounts.reconcile(accountId);
  }
}
