import { Controller, Get, NotFoundException, Param, Post } from '@nestjs/common';
import { Invoices, type InvoiceWithPayments, type Receipt } from './invoices.js';

@Controller('invoices')
export class InvoicesController {
  constructor(private readonly invoices: Invoices) {}

  @Post(':id/pay')
  pay(@Param('id') id: string): Promise<Receipt> {
    return this.invoices.pay(id);
  }

  @Get(':id')
  async find(@Param('id') id: string): Promise<InvoiceWithPayments> {
    const invoice = await this.invoices.find(id);
    if (!invoice) throw new NotFoundException(`There is no invoice ${id}.`);
    return invoice;
  }
}
