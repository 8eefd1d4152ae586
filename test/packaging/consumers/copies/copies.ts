import 'reflect-metadata';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import * as esm from 'nestjs-cmdx';
import { Gate } from './gate.js';

type Copy = typeof esm;

// Node's require finds the ESM copy too ("module-sync"). Tools that do not know that condition find
// the CJS one: `front-door` is node told to be such a tool, else the file is named.
const require = createRequire(import.meta.url);
const cjs = require(
  process.argv.includes('front-door')
    ? 'nestjs-cmdx'
    : join(dirname(require.resolve('nestjs-cmdx/package.json')), 'dist/cjs/index.js'),
) as Copy;

@Injectable()
class ThroughEsm {
  @esm.LockWith((id: string) => id, { name: 'account' })
  async reconcile(_id: string, gate: Gate): Promise<string> {
    await gate.pass();
    return 'ran';
  }
}

@Injectable()
class ThroughCjs {
  @cjs.LockWith((id: string) => id, { name: 'account' })
  async reconcile(_id: string, gate: Gate): Promise<string> {
    await gate.pass();
    return 'ran';
  }
}

/** One method, one decorator of each copy: one envelope, in the fixed order. */
@Injectable()
class ThroughBoth {
  @esm.LockWith((id: string) => id, { name: 'account' })
  @cjs.RateLimit({ max: 1, per: 60 })
  async reconcile(_id: string, gate: Gate): Promise<string> {
    await gate.pass();
    return 'ran';
  }
}

/** The module of one copy; its refusals are read with the other. */
async function application(own: Copy, other: Copy) {
  @Module({
    imports: [own.CmdxModule.forRoot()],
    providers: [ThroughEsm, ThroughCjs, ThroughBoth],
  })
  class AppModule {}

  const outcome = (error: unknown) =>
    other.isRefusalError(error) && error instanceof other.RefusalError ? error.code : String(error);

  const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'] });
  const gate = new Gate();
  const first = app.get(ThroughEsm).reconcile('acct_42', gate);
  await Promise.race([gate.entered, first]);
  const answers = {
    cjsWhileEsmHolds: await app.get(ThroughCjs).reconcile('acct_42', gate).catch(outcome),
    bothWhileEsmHolds: await app.get(ThroughBoth).reconcile('acct_42', gate).catch(outcome),
    bothAgain: await app.get(ThroughBoth).reconcile('acct_43', gate).catch(outcome),
    sameStore: app.get(esm.Store) === app.get(cjs.Store),
  };
  gate.open();
  const held = await first;
  await app.close();
  return { held, ...answers };
}

async function twoRoots(): Promise<string> {
  @Module({ imports: [esm.CmdxModule.forRoot(), cjs.CmdxModule.forRoot()] })
  class AppModule {}

  return NestFactory.createApplicationContext(AppModule, {
    logger: false,
    abortOnError: false,
  }).then(
    () => 'booted',
    (error: unknown) => (esm.isDefinitionError(error) ? error.code : String(error)),
  );
}

async function main(): Promise<void> {
  const classes = ['Store', 'Telemetry', 'Cmdx'] as const;
  console.log(
    JSON.stringify({
      twoCopies: esm.LockWith !== cjs.LockWith,
      sameClasses: Object.fromEntries(classes.map((name) => [name, esm[name] === cjs[name]])),
      moduleOfEsm: await application(esm, cjs),
      moduleOfCjs: await application(cjs, esm),
      twoRoots: await twoRoots(),
    }),
  );
}

void main();
