import 'reflect-metadata';
import { isNotManagedError } from 'nestjs-cmdx';
import { Accounts } from './accounts.js';
import { Gate } from './gate.js';

/** An instance that Nest did not make, with or without the bypass. */
async function main(): Promise<void> {
  if (process.argv.includes('bypass')) await import('nestjs-cmdx/testing/bypass');

  const gate = new Gate();
  gate.open();
  const answer = await new Accounts()
    .reconcile('acct_42', gate)
    .catch((error: unknown) => (isNotManagedError(error) ? error.code : String(error)));
  console.log(JSON.stringify(answer));
}

void main();
