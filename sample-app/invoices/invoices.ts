import { Injectable } from '@nestjs/common';
import { fail, input, LockedRow, Named, WithRowLock } from 'nestjs-cmdx';
import { Database } from '../database/database.js';

export interface Invoice {
  readonly id: string;
  readonly amount: number;
  readonly status: 'new' | 'paid';
}

export interface InvoiceWithPayments extends Invoice {
  /** Their amounts: none, or one. */
  readonly payments: readonly number[];
}

export interface Receipt {
  readonly invoice: string;
  readonly paid: number;
}

@Injectable()
export class Invoices {
  constructor(private readonly database: Database) {}

  /**
   * Pays an invoice once, however many ask at the same time: the second waits until the first has
   * committed, and then sees that it is paid. All that the body asks of the database, it asks in the
   * transaction that holds the row.
   */
  @WithRowLock('invoices', input('id'))
  async pay(@Named('id') id: string, @LockedRow() invoice?: Invoice): Promise<Receipt> {
    if (invoice?.status !== 'new') fail('This invoice is paid.', { code: 'already_paid' });
    const { amount } = invoice;
    await this.database.query('INSERT INTO payments (invoice_id, amount) VALUES ($1, $2)', [
      id,
      amount,
    ]);
    await this.database.query("UPDATE invoices SET status = 'paid' WHERE id = $1", [id]);
    return { invoice: id, paid: amount };
  }

  /** As it was last committed: a plain read waits for nobody, whoever is paying meanwhile. */
  async find(id: string): Promise<InvoiceWithPayments | undefined> {
    const [invoice] = await this.database.query<InvoiceWithPayments>(
      `SELECT id, amount, status,
         ARRAY(SELECT payments.amount FROM payments WHERE invoice_id = id) AS payments
       FROM invoices WHERE id = $1`,
      [id],
    );
    return invoice;
  }
}
