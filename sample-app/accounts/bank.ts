import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';

const STATEMENTS = new Map([
  ['acct_41', 120],
  ['acct_42', 200],
  ['acct_43', 75],
]);

/** Stands in for the bank's API, which takes its time. */
@Injectable()
export class Bank {
  async balanceOf(accountId: string): Promise<number> {
    await sleep(2_000);
    return STATEMENTS.get(accountId) ?? 0;
  }

  async confirm(_accountId: string, _amount: number): Promise<void> {
    await sleep(1_000);
  }
}
