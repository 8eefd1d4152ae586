import { Transform } from 'class-transformer';
import { IsEmail } from 'class-validator';

export class ForgotPassword {
  /** In lower case, so that one address has one quota however it is typed. */
  @Transform(({ value }: { value: unknown }) =>
    typeof value === 'string' ? value.trim().toLowerCase() : value,
  )
  @IsEmail()
  readonly email!: string;
}
