import { Controller, Param, Post } from '@nestjs/common';
import { Invoices, type Receipt } from './invoices.js';

@Controller('invoices')
export class InvoicesController {
  constructor(private readonly invoices: Invoices) {}

  @Post(':id/pay')
  pay(@Param('id') id: string): Promise<Receipt> {
    return this.invoices.pay(id);
  }
}
