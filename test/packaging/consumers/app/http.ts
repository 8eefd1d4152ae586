import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './accounts.js';
import { Gate, threeStarts } from './gate.js';

async function main(): Promise<void> {
  const app = await NestFactory.create(AppModule, { logger: ['error'] });
  await app.listen(0, '127.0.0.1');
  const url = `${await app.getUrl()}/accounts/acct_42`;

  const answers = await threeStarts(app.get(Gate), async () => {
    const response = await fetch(url, { method: 'POST', headers: { connection: 'close' } });
    const body = (await response.json()) as { code?: string };
    return {
      status: response.status,
      code: body.code,
      retryAfter: response.headers.get('retry-after'),
    };
  });

  await app.close();
  console.log(JSON.stringify(answers));
}

void main();
