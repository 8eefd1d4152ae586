import { Module } from '@nestjs/common';
import { AccountsModule } from '../accounts/accounts.module.js';
import { CardProcessor } from './card-processor.js';
import { PaymentEvents } from './payment-events.js';
import { PaymentWebhooksController } from './payment-webhooks.controller.js';
import { PaymentsController } from './payments.controller.js';

@Module({
  imports: [AccountsModule],
  controllers: [PaymentsController, PaymentWebhooksController],
  providers: [CardProcessor, PaymentEvents],
})
export class PaymentsModule {}
