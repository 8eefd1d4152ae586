import { IsInt, IsNotEmpty, IsPositive, IsString } from 'class-validator';

export class CreatePayment {
  @IsString()
  @IsNotEmpty()
  readonly accountId!: string;

  @IsInt()
  @IsPositive()
  readonly amount!: number;
}
