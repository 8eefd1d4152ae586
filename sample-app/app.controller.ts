import { Controller, Get } from '@nestjs/common';

@Controller()
export class AppController {
  @Get()
  routes(): { readonly routes: readonly string[] } {
    return {
      routes: [
        'POST /accounts/:accountId/reconcile',
        'POST /auth/forgot-password {"email"}',
        'GET /inventory/:sku, for example A-1',
        'GET /breakers/warehouse',
        'POST /warehouse/:condition, one of well, flaky, down',
        'POST /payments {"accountId", "amount"}, with Authorization: Bearer ada-demo-token and an Idempotency-Key',
        'POST /webhooks/payments {"id", "accountId", "amount"}',
        'POST /invoices/:id/pay, for example inv-1, with DATABASE_URL',
        'GET /invoices/:id, with DATABASE_URL',
      ],
    };
  }
}
