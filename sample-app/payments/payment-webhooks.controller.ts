import { Body, Controller, HttpCode, HttpStatus, Post, ValidationPipe } from '@nestjs/common';
import { type Booking, PaymentEvents } from './payment-events.js';
import { PaymentEvent } from './payment-event.js';

/** Called by the card processor. A real one signs what it sends, and a guard would check that here. */
@Controller('webhooks/payments')
export class PaymentWebhooksController {
  constructor(private readonly events: PaymentEvents) {}

  @Post()
  @HttpCode(HttpStatus.OK)
  receive(@Body(new ValidationPipe()) event: PaymentEvent): Promise<Booking> {
    return this.events.book(event);
  }
}
