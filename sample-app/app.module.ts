import { Module } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { CmdxModule, LoggerTelemetry, MemoryStore, type Store } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { AccountsModule } from './accounts/accounts.module.js';
import { AppController } from './app.controller.js';
import { AuthModule } from './auth/auth.module.js';
import { InventoryModule } from './inventory/inventory.module.js';
import { PaymentsModule } from './payments/payments.module.js';

function createStore(url = process.env['REDIS_URL']): Store {
  return url ? new RedisStore({ url }) : new MemoryStore();
}

@Module({
  imports: [
    CmdxModule.forRootAsync({
      useFactory: () => ({ store: createStore(), telemetry: [new LoggerTelemetry()] }),
    }),
    ScheduleModule.forRoot(),
    AccountsModule,
    AuthModule,
    InventoryModule,
    PaymentsModule,
  ],
  controllers: [AppController],
})
export class AppModule {}
