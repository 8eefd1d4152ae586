import { IsInt, IsNotEmpty, IsPositive, IsString } from 'class-validator';

/** What the card processor tells: a payment has been settled. It may tell so more than once. */
export class PaymentEvent {
  /** The same in every delivery of one event. */
  @IsString()
  @IsNotEmpty()
  readonly id!: string;

  @IsString()
  @IsNotEmpty()
  readonly accountId!: string;

  @IsInt()
  @IsPositive()
  readonly amount!: number;
}
