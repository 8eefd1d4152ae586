import { Module } from '@nestjs/common';
import { AuthController } from './auth.controller.js';
import { Mailer } from './mailer.js';

@Module({ controllers: [AuthController], providers: [Mailer] })
export class AuthModule {}
