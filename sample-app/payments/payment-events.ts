import { Injectable } from '@nestjs/common';
import { arg, IdempotentBy, LockWith } from 'nestjs-cmdx';
import { Accounts } from '../accounts/accounts.js';
import type { PaymentEvent } from './payment-event.js';

export interface Booking {
  readonly accountId: string;
  readonly balance: number;
}

@Injectable()
export class PaymentEvents {
  constructor(private readonly accounts: Accounts) {}

  /**
   * Each event is booked once, however often it comes; and nothing else happens to its account
   * meanwhile. A second delivery waits for the first, and is answered like it.
   */
  @LockWith(arg(0, 'accountId'), { name: 'account', ttl: '30s', wait: '10s' })
  @IdempotentBy(arg(0, 'id'), { ttl: '7d' })
  async book({ accountId, amount }: PaymentEvent): Promise<Booking> {
    return { accountId, balance: await this.accounts.add(accountId, amount) };
  }
}
