import { Injectable } from '@nestjs/common';
import { arg, LockWith } from 'nestjs-cmdx';
import { Bank } from './bank.js';

export interface Reconciliation {
  readonly accountId: string;
  readonly booked: number;
  readonly stated: number;
  readonly difference: number;
}

@Injectable()
export class Accounts {
  readonly #balances = new Map([
    ['acct_41', 120],
    ['acct_42', 250],
    ['acct_43', 75],
  ]);

  constructor(private readonly bank: Bank) {}

  get ids(): readonly string[] {
    return [...this.#balances.keys()];
  }

  @LockWith(arg(0), { ttl: '30s' })
  async reconcile(accountId: string): Promise<Reconciliation> {
    const booked = this.#balances.get(accountId) ?? 0;
    const stated = await this.bank.balanceOf(accountId);
    this.#balances.set(accountId, stated);
    return { accountId, booked, stated, difference: stated - booked };
  }
}
