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

  /** `name`: shares its lease with whatever else changes an account. */
  @LockWith(arg(0), { name: 'account', ttl: '30s' })
  async reconcile(accountId: string): Promise<Reconciliation> {
    const booked = this.#balances.get(accountId) ?? 0;
    const stated = await this.bank.balanceOf(accountId);
    this.#balances.set(accountId, stated);
    return { accountId, booked, stated, difference: stated - booked };
  }

  /** For callers that hold the account's lease: what is added between its two halves is lost. */
  async add(accountId: string, amount: number): Promise<number> {
    const balance = (this.#balances.get(accountId) ?? 0) + amount;
    await this.bank.confirm(accountId, amount);
    this.#balances.set(accountId, balance);
    return balance;
  }
}
