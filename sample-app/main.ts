import { Logger } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';

const app = await NestFactory.create(AppModule);
app.enableShutdownHooks();
await app.listen(process.env['PORT'] ?? 3000);

const url = await app.getUrl();
Logger.log(`Listening on ${url.replace('[::1]', 'localhost')}`, 'SampleApp');
