import 'reflect-metadata';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { cpus, loadavg } from 'node:os';
import { type CallReport, type CallRow, measureCalls } from './calls.js';
import { canPin } from './child.js';
import { type EnvelopeRow, measureEnvelope } from './envelope.js';
import { type HttpRow, measureHttp, ratioToThrottler, type Traffic, TRAFFIC } from './http.js';
import { measureRedis, type RedisReport } from './redis.js';
import type { Summary } from './statistics.js';

/** Everything one run measures; `--json` prints it as it is. */
export interface BenchReport {
  readonly machine: Readonly<Record<string, string>>;
  readonly calls: CallReport;
  readonly envelope: readonly EnvelopeRow[];
  readonly redis: RedisReport;
  readonly http: readonly HttpRow[];
}

const FULL = {
  calls: { rounds: 9, callsPerRound: 10_000, manyKeys: 10_000 },
  envelope: { rounds: 45, callsPerRound: 2_000, manyKeys: 10_000 },
  redis: { rounds: 9, callsPerRound: 500 },
  http: { few: false, rounds: 5, warmUpSeconds: 2, seconds: 1, connections: 32 },
};
const QUICK = {
  calls: { rounds: 5, callsPerRound: 1_000, manyKeys: 1_000 },
  envelope: { rounds: 5, callsPerRound: 500, manyKeys: 1_000 },
  redis: { rounds: 5, callsPerRound: 50 },
  http: { few: true, rounds: 1, warmUpSeconds: 0.4, seconds: 0.4, connections: 16 },
};

const settings = process.argv.includes('--quick') ? QUICK : FULL;
const asJson = process.argv.includes('--json');
const say = (text: string): void => void (asJson || console.log(text));

const machine = describeMachine();
say(
  Object.entries(machine)
    .map(([name, value]) => `${name} ${value}`)
    .join(', '),
);

// First, while neither side has been compiled for anything else.
say(
  '\nThe whole envelope in memory: CPU nanoseconds per call, median (min to max), beside cockatiel, ' +
    'rate-limiter-flexible, async-mutex and a Map doing the same work',
);
const envelope = await measureEnvelope(settings.envelope);
say(formatEnvelope(envelope));

say('\nIn memory: CPU nanoseconds per guarded call above the bare method, median (min to max)');
const calls = await measureCalls(settings.calls);
say(formatCalls(calls));

say(
  '\nOn Redis: microseconds per call, one after the other, p50, median of the rounds (min to max)',
);
const redis = await measureRedis(settings.redis);
say(formatRedis(redis));

say(
  `\nOver HTTP: POST with a validated DTO, ${settings.http.connections} connections, ` +
    (canPin ? 'server and client on a core each' : 'server and client share the cores'),
);
const http = await measureHttp(settings.http);
say(formatHttp(http));

if (asJson) {
  const report: BenchReport = { machine, calls, envelope, redis, http };
  console.log(JSON.stringify(report));
}

function describeMachine(): Readonly<Record<string, string>> {
  const require = createRequire(import.meta.url);
  const versionOf = (name: string): string => {
    const file = require.resolve(`${name}/package.json`);
    return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
  };
  return {
    'nestjs-cmdx': versionOf('nestjs-cmdx'),
    node: process.versions.node,
    '@nestjs/core': versionOf('@nestjs/core'),
    '@nestjs/throttler': versionOf('@nestjs/throttler'),
    ioredis: versionOf('ioredis'),
    cores: `${cpus().length} (${cpus()[0]?.model ?? 'unknown'})`,
    'load average': loadavg()[0]?.toFixed(1) ?? 'unknown',
  };
}

function formatCalls({ bare, rows }: CallReport): string {
  const labels = [...new Set(rows.map(({ label }) => label))];
  const columns = rows.filter(({ label }) => label === labels[0]);
  const heading = columns.map(
    ({ keys, subscribers }) =>
      `${keys === 1 ? 'one key' : `${keys} keys`}, ${subscribers === 0 ? 'unheard' : '1 subscriber'}`,
  );
  const line = (label: string, cells: readonly string[]): string =>
    `  ${label.padEnd(30)}${cells.map((cell) => cell.padStart(26)).join('')}`;
  const cellOf = (label: string, { keys, subscribers }: CallRow): string => {
    const row = rows.find(
      (each) => each.label === label && each.keys === keys && each.subscribers === subscribers,
    );
    return row ? show(row.above) : '-';
  };
  return [
    line('', heading),
    ...labels.map((label) =>
      line(
        label,
        columns.map((column) => cellOf(label, column)),
      ),
    ),
    `  (an awaited call of the bare method: ${show(bare)})`,
  ].join('\n');
}

function formatEnvelope(rows: readonly EnvelopeRow[]): string {
  return rows
    .map(({ label, keys, ours, theirs, ratio }) => {
      const title = `${label}, ${keys === 1 ? 'one key' : `${keys} keys`}`;
      return `  ${title.padEnd(42)}${show(ours).padStart(26)} theirs ${show(theirs).padStart(26)} ratio ${showRatio(ratio)}`;
    })
    .join('\n');
}

function formatRedis({ rows, toTwoPings, othersToOurs, others }: RedisReport): string {
  const names = Object.entries(others).map(([name, version]) => `${name} ${version}`);
  return [
    ...rows.map(({ label, p50 }) => `  ${label.padEnd(50)}${show(p50)}`),
    `  five rings over 2 PINGs: ${showRatio(toTwoPings)}`,
    `  the others over five rings: ${showRatio(othersToOurs)} (${names.join(', ')})`,
  ].join('\n');
}

function formatHttp(rows: readonly HttpRow[]): string {
  const lines: string[] = [];
  for (const adapter of ['express', 'fastify'] as const) {
    for (const traffic of Object.keys(TRAFFIC) as Traffic[]) {
      const { keys, max } = TRAFFIC[traffic];
      if (!rows.some((row) => row.adapter === adapter && row.traffic === traffic)) continue;
      lines.push(`  ${adapter}, ${traffic} (${keys} keys, limit ${max} per minute, never reached)`);
      for (const row of rows) {
        if (row.adapter !== adapter || row.traffic !== traffic) continue;
        lines.push(
          `    ${row.guard.padEnd(28)}${show(row.perSecond).padStart(26)} requests/s` +
            `${show(row.cpuUs).padStart(26)} us CPU per request`,
        );
      }
      const ratio = ratioToThrottler(rows, adapter, traffic);
      lines.push(`    limit is ${ratio.toFixed(2)}x @nestjs/throttler in requests/s`);
    }
  }
  return lines.join('\n');
}

function show({ median, min, max }: Summary): string {
  return `${Math.round(median)} (${Math.round(min)} to ${Math.round(max)})`;
}

function showRatio({ median, min, max }: Summary): string {
  return `${median.toFixed(2)} (${min.toFixed(2)} to ${max.toFixed(2)})`;
}
