import 'reflect-metadata';
import {
  Body,
  Controller,
  type DynamicModule,
  HttpCode,
  Module,
  Post,
  type Type,
  UseGuards,
  ValidationPipe,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler';
import { IsInt, IsString, Min } from 'class-validator';
import type { AddressInfo } from 'node:net';
import { CmdxModule, header, LockWith, RateLimit } from 'nestjs-cmdx';
import { KEY_HEADER } from './http-load-order.js';

export type Adapter = 'express' | 'fastify';
export type Guard = 'bare' | 'imported' | 'limit' | 'lock+limit' | 'throttler';

/** What the parent process says which server to be. */
export interface ServerOrder {
  readonly adapter: Adapter;
  readonly guard: Guard;
  /** Starts per minute and key. */
  readonly max: number;
}

class TransferDto {
  @IsString()
  readonly to!: string;

  @IsInt()
  @Min(1)
  readonly amount!: number;
}

interface Receipt {
  readonly to: string;
  readonly amount: number;
  readonly done: true;
}

/** Every application has the same route; only what stands around it differs. */
function applicationOf({ guard, max }: ServerOrder): Type | DynamicModule {
  const key = header(KEY_HEADER);
  const limit = { max, per: '1m' } as const;

  @Controller('transfers')
  class BareController {
    @Post()
    @HttpCode(200)
    async transfer(@Body() { to, amount }: TransferDto): Promise<Receipt> {
      return { to, amount, done: true };
    }
  }

  @Controller('transfers')
  class LimitedController {
    @Post()
    @HttpCode(200)
    @RateLimit(key, limit)
    async transfer(@Body() { to, amount }: TransferDto): Promise<Receipt> {
      return { to, amount, done: true };
    }
  }

  @Controller('transfers')
  class LockedController {
    @Post()
    @HttpCode(200)
    @LockWith(key)
    @RateLimit(key, limit)
    async transfer(@Body() { to, amount }: TransferDto): Promise<Receipt> {
      return { to, amount, done: true };
    }
  }

  @Controller('transfers')
  class ThrottledController {
    @Post()
    @HttpCode(200)
    @UseGuards(ThrottlerGuard)
    async transfer(@Body() { to, amount }: TransferDto): Promise<Receipt> {
      return { to, amount, done: true };
    }
  }

  const throttler = ThrottlerModule.forRoot({
    throttlers: [{ ttl: 60_000, limit: max }],
    getTracker: (request) => String((request['headers'] as Record<string, unknown>)[KEY_HEADER]),
  });

  @Module({})
  class AppModule {}
  switch (guard) {
    case 'bare':
      return { module: AppModule, controllers: [BareController] };
    case 'imported':
      return {
        module: AppModule,
        imports: [CmdxModule.forRoot()],
        controllers: [BareController],
      };
    case 'limit':
      return {
        module: AppModule,
        imports: [CmdxModule.forRoot()],
        controllers: [LimitedController],
      };
    case 'lock+limit':
      return {
        module: AppModule,
        imports: [CmdxModule.forRoot()],
        controllers: [LockedController],
      };
    case 'throttler':
      return { module: AppModule, imports: [throttler], controllers: [ThrottledController] };
  }
}

const order = JSON.parse(process.argv[2] ?? '{}') as ServerOrder;
const app =
  order.adapter === 'fastify'
    ? await NestFactory.create<NestFastifyApplication>(applicationOf(order), new FastifyAdapter(), {
        logger: ['error'],
      })
    : await NestFactory.create(applicationOf(order), { logger: ['error'] });
app.useGlobalPipes(new ValidationPipe({ transform: true, whitelist: true }));
await app.listen(0, '127.0.0.1');

// Each question is answered with the CPU time this process has used so far.
process.on('message', () => process.send?.(process.cpuUsage()));
process.once('disconnect', () => void app.close());
process.send?.((app.getHttpServer().address() as AddressInfo).port);
