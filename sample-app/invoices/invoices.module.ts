import { Module } from '@nestjs/common';
import { InvoicesController } from './invoices.controller.js';
import { Invoices } from './invoices.js';
import { NoDatabaseController } from './no-database.controller.js';

@Module({ controllers: [InvoicesController], providers: [Invoices] })
export class InvoicesModule {}

@Module({ controllers: [NoDatabaseController] })
export class NoInvoicesModule {}
