import { Injectable } from '@nestjs/common';
import { currentTransaction, fail, input, LockedRow, Named, WithRowLock } from 'nestjs-cmdx';
import type { PoolClient } from 'pg';

interface Invoice {
  readonly id: string;
  readonly amount: number;
  readonly status: 'new' | 'paid';
}

export interface Receipt {
  readonly invoice: string;
  readonly paid: number;
}

@Injectable()
export class Invoices {
  /**
   * Pays an invoice once, however many ask at the same time: the second waits until the first has
   * committed, and then sees that it is paid.
   */
  @WithRowLock('invoices', input('id'))
  async pay(@Named('id') id: string, @LockedRow() invoice?: Invoice): Promise<Receipt> {
    const { amount, status } = invoice as Invoice;
    if (status !== 'new') fail('This invoice is paid.', { code: 'already_paid' });
    const transaction = currentTransaction<PoolClient>() as PoolClient;
    await transaction.query('INSERT INTO payments (invoice_id, amount) VALUES ($1, $2)', [
      id,
      amount,
    ]);
    await transaction.query("UPDATE invoices SET status = 'paid' WHERE id = $1", [id]);
    return { invoice: id, paid: amount };
  }
}
