import { Body, Controller, Post, UseGuards, ValidationPipe } from '@nestjs/common';
import { fromRequest, header, IdempotentBy } from 'nestjs-cmdx';
import { type AuthenticatedRequest, BearerGuard } from '../auth/bearer.guard.js';
import { CardProcessor } from './card-processor.js';
import { CreatePayment } from './create-payment.js';

export interface Payment {
  readonly id: string;
  readonly accountId: string;
  readonly amount: number;
}

@Controller('payments')
@UseGuards(BearerGuard)
export class PaymentsController {
  constructor(private readonly processor: CardProcessor) {}

  /** The client chooses the key of its payment, and sends it again with each try. */
  @Post()
  @IdempotentBy(header('Idempotency-Key'), {
    scope: fromRequest<AuthenticatedRequest>((request) => request.user.id),
    onBlank: 'fail',
  })
  async create(@Body(new ValidationPipe()) payment: CreatePayment): Promise<Payment> {
    const { accountId, amount } = payment;
    return { id: await this.processor.charge(amount), accountId, amount };
  }
}
