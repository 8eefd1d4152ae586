import { Module } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { CmdxModule, LoggerTelemetry, MemoryStore, type Store } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { PgTransactions } from 'nestjs-cmdx/row-lock';
import { AccountsModule } from './accounts/accounts.module.js';
import { AppController } from './app.controller.js';
import { AuthModule } from './auth/auth.module.js';
import { Database } from './database/database.js';
import { DatabaseModule } from './database/database.module.js';
import { InventoryModule } from './inventory/inventory.module.js';
import { InvoicesModule, NoInvoicesModule } from './invoices/invoices.module.js';
import { PaymentsModule } from './payments/payments.module.js';

const { DATABASE_URL, REDIS_URL } = process.env;

function createStore(): Store {
  return REDIS_URL ? new RedisStore({ url: REDIS_URL }) : new MemoryStore();
}

@Module({
  imports: [
    CmdxModule.forRootAsync({
      inject: [{ token: Database, optional: true }],
      useFactory: (database?: Database) => ({
        store: createStore(),
        telemetry: [new LoggerTelemetry()],
        ...(database && { rowLock: new PgTransactions({ pool: database.pool }) }),
      }),
    }),
    ScheduleModule.forRoot(),
    AccountsModule,
    AuthModule,
    InventoryModule,
    PaymentsModule,
    ...(DATABASE_URL ? [DatabaseModule, InvoicesModule] : [NoInvoicesModule]),
  ],
  controllers: [AppController],
})
export class AppModule {}
