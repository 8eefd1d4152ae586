import { Controller, Post, ServiceUnavailableException } from '@nestjs/common';

/** Stands in for the invoices where there is no database to keep them. */
@Controller('invoices')
export class NoDatabaseController {
  @Post(':id/pay')
  pay(): never {
    throw new ServiceUnavailableException(
      'Invoices are kept in Postgres: start the application with DATABASE_URL, for example postgres://localhost/shop.',
    );
  }
}
