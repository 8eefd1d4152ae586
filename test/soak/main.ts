import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { preparePostgres } from '../support/postgres-binary.js';
import { prepareRedis } from '../support/redis-binary.js';
import { startRedis } from '../support/redis-server.js';
import { soakHalfOpen } from './half-open.js';
import { soakLimits } from './limits.js';
import { soakLocks } from './locks.js';
import { soakRowLocks } from './row-locks.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');

/** What one part found out. */
export interface Findings {
  readonly summary: string;
  /** What must never happen, and did. */
  readonly violations: readonly string[];
}

/** `--quick`: a look at whether the soak itself works. */
const quick = process.argv.includes('--quick');
const schedules = quick ? 20 : 3_000;
const interleavings = quick ? 10 : 2_500;
const lockSeconds = quick ? 5 : 30;
const limitRounds = quick ? 2 : 20;
const halfOpenRounds = quick ? 1 : 10;
const rowLockSeconds = quick ? 2 : 10;

const PARTS: readonly (readonly [string, (redisUrl: string) => Promise<Findings>])[] = [
  ['memory and Redis decide alike', () => soakSpec('differential', 'CMDX_FUZZ_RUNS', schedules)],
  ['claims keep to their model', () => soakSpec('claim-model', 'CMDX_MODEL_RUNS', interleavings)],
  ['locks, two processes, killed at random', (url) => soakLocks(url, lockSeconds)],
  ['rate limits, four processes', (url) => soakLimits(url, limitRounds)],
  ['half-open breaker, four processes', () => soakHalfOpen(halfOpenRounds)],
  ['row locks, asked for crosswise, through each library', () => soakRowLocks(rowLockSeconds)],
];

prepareRedis();
await preparePostgres();
const server = await startRedis();
let failed = 0;
try {
  for (const [name, run] of PARTS) {
    const started = performance.now();
    const { summary, violations } = await run(server.url);
    const seconds = ((performance.now() - started) / 1_000).toFixed(0);
    console.log(
      `${violations.length === 0 ? 'ok    ' : 'FAILED'} ${name} (${seconds} s): ${summary}`,
    );
    for (const violation of violations.slice(0, 20)) console.log(`       ${violation}`);
    failed += violations.length;
  }
} finally {
  await server.stop();
}
console.log(failed === 0 ? 'no violation' : `${failed} violations`);
process.exitCode = failed === 0 ? 0 : 1;

/** A random test of the suite, with many times as many runs. */
async function soakSpec(name: string, variable: string, runs: number): Promise<Findings> {
  const jest = join(ROOT, 'node_modules/jest/bin/jest.js');
  const flags = ['--experimental-vm-modules', '--no-warnings'];
  const child = spawn(process.execPath, [...flags, jest, `test/conformance/${name}.spec.ts`], {
    cwd: ROOT,
    env: { ...process.env, [variable]: String(runs) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text: Buffer) => (output += text.toString()));
  }
  await once(child, 'close');
  return {
    summary: `${runs} random runs`,
    violations: child.exitCode === 0 ? [] : [output],
  };
}
