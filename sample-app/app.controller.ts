import { Controller, Get } from '@nestjs/common';

@Controller()
export class AppController {
  @Get()
  routes(): { readonly routes: readonly string[] } {
    return {
      routes: ['POST /accounts/:accountId/reconcile', 'POST /auth/forgot-password {"email"}'],
    };
  }
}
