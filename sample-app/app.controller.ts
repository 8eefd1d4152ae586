import { Controller, Get } from '@nestjs/common';

@Controller()
export class AppController {
  @Get()
  routes(): { readonly routes: readonly string[] } {
    return {
      routes: [
        'POST /accounts/:accountId/reconcile',
        'POST /auth/forgot-password {"email"}',
        'POST /payments {"accountId", "amount"}, with Authorization: Bearer ada-demo-token and an Idempotency-Key',
        'POST /webhooks/payments {"id", "accountId", "amount"}',
      ],
    };
  }
}
