import { beforeAll, describe, expect, it } from '@jest/globals';
import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { CallRow } from './calls.js';
import type { BenchReport } from './main.js';

const HERE = dirname(fileURLToPath(import.meta.url));
const SUPPORT = join(HERE, '../support');

/**
 * The benchmark itself, small, in plain Node, on the sources. It checks by itself that each subject
 * guards what it claims to guard; here only what no noise of a busy machine can turn around is asked.
 */
describe('does the benchmark measure all it promises?', () => {
  let report: BenchReport;

  beforeAll(async () => {
    const loaders = ['register-typescript.mjs', 'register-sources.mjs'];
    const node = ['--no-warnings', ...loaders.flatMap((file) => ['--import', join(SUPPORT, file)])];
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [...node, join(HERE, 'main.ts'), '--quick', '--json'],
      { timeout: 110_000 },
    );
    report = JSON.parse(stdout) as BenchReport;
  }, 120_000);

  it('says what it ran on', () => {
    const { machine } = report;
    expect(machine['node']).toBe(process.versions.node);
    for (const name of ['nestjs-cmdx', '@nestjs/core', '@nestjs/throttler']) {
      expect(machine[name]).toMatch(/^\d+\.\d+\.\d+/);
    }
  });

  it('every way of being guarded, heard and unheard, with one key and many', () => {
    const labels = new Set(report.calls.rows.map(({ label }) => label));
    expect([...labels]).toEqual([
      'limit (fixed_window)',
      'limit (leaky_bucket)',
      'lock',
      'lock + limit',
      'limit denied, throws',
      'limit denied, skips',
      'lock busy, throws',
      'lock busy, skips',
      'nothing enabled (if: false)',
    ]);
    expect(report.calls.rows).toHaveLength(labels.size * 4);
    for (const { above } of report.calls.rows) expect(Number.isFinite(above.median)).toBe(true);
  });

  it('a guarded call costs a small multiple of a bare one, not a large one', () => {
    const { bare, rows } = report.calls;
    const costs = (row: CallRow): number => row.above.median / bare.median;
    const admitted = rows.filter(({ label, subscribers }) => label.startsWith('l') && !subscribers);
    for (const row of admitted.filter(({ label }) => !label.includes('throws'))) {
      expect({ row, tooDear: costs(row) > 300 }).toEqual({ row, tooDear: false });
    }
  });

  it('the whole envelope in memory, beside the usual packages doing the same work', () => {
    expect(report.envelope.map(({ label, keys }) => [label, keys])).toEqual([
      ['four rings (no idempotency)', 1],
      ['four rings (no idempotency)', 1_000],
      ['five rings', 1],
      ['five rings', 1_000],
    ]);
    for (const { ours, theirs, ratio } of report.envelope) {
      expect(theirs.median).toBeGreaterThan(0);
      expect(ratio.min).toBeLessThanOrEqual(ratio.median);
      expect({ ours, theirs, tooDear: ratio.median > 10 }).toMatchObject({ tooDear: false });
    }
  });

  it('Redis, beside as many bare round trips and beside the usual packages', () => {
    const { rows, toTwoPings, othersToOurs, others } = report.redis;
    expect(rows.map(({ label }) => label)).toEqual([
      '1 PING',
      'limit (1 trip)',
      '2 PINGs',
      'lock + limit (2 trips)',
      'five rings (2 trips)',
      'throttler + redlock + node-idempotency (5 trips)',
    ]);
    for (const { p50 } of rows) expect(p50.median).toBeGreaterThan(0);
    expect(toTwoPings.median).toBeGreaterThan(0);
    expect(othersToOurs.median).toBeGreaterThan(0);
    expect(Object.keys(others)).toContain('redlock');
  });

  it('both adapters, bare, guarded and beside the throttler, answered without a single refusal', () => {
    for (const adapter of ['express', 'fastify']) {
      const rows = report.http.filter((row) => row.adapter === adapter);
      expect(rows.map(({ guard }) => guard)).toEqual(['bare', 'limit', 'throttler']);
      for (const { perSecond, cpuUs } of rows) {
        expect(perSecond.median).toBeGreaterThan(0);
        expect(cpuUs.median).toBeGreaterThan(0);
      }
    }
  });

  it('a guarded route costs the server a small multiple of a bare one', () => {
    for (const adapter of ['express', 'fastify']) {
      const [bare, limit] = report.http
        .filter((row) => row.adapter === adapter)
        .map(({ cpuUs }) => cpuUs.min);
      expect((limit ?? Infinity) / (bare ?? 0)).toBeLessThan(10);
    }
  });
});
