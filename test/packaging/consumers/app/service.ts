import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { isRefusalError } from 'nestjs-cmdx';
import { Accounts, AppModule } from './accounts.js';
import { Gate, threeStarts } from './gate.js';

async function main(): Promise<void> {
  const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'] });
  const accounts = app.get(Accounts);
  const gate = new Gate();

  const answers = await threeStarts(gate, () =>
    accounts
      .reconcile('acct_42', gate)
      .catch((error: unknown) => (isRefusalError(error) ? error.code : String(error))),
  );

  await app.close();
  console.log(JSON.stringify(answers));
}

void main();
