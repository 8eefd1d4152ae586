import { Body, Controller, HttpCode, HttpStatus, Post, ValidationPipe } from '@nestjs/common';
import { input, RateLimit } from 'nestjs-cmdx';
import { ForgotPassword } from './forgot-password.js';
import { Mailer } from './mailer.js';

@Controller('auth')
export class AuthController {
  constructor(private readonly mailer: Mailer) {}

  @Post('forgot-password')
  @HttpCode(HttpStatus.OK)
  @RateLimit(input('email'), { max: 5, per: '1m' })
  async forgotPassword(
    @Body(new ValidationPipe({ transform: true })) { email }: ForgotPassword,
  ): Promise<{ readonly message: string }> {
    await this.mailer.sendResetLink(email);
    return { message: 'If this address has an account, a link is on its way.' };
  }
}
