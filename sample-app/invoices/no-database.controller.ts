import { All, Controller, ServiceUnavailableException } from '@nestjs/common';

/** Stands in for the invoices where there is no database to keep them. */
@Controller('invoices')
export class NoDatabaseController {
  @All(['', '*path'])
  refuse(): never {
    throw new ServiceUnavailableException(
      'Invoices are kept in Postgres: start with DATABASE_URL=postgres://localhost/shop npm start',
    );
  }
}
