import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type Manifest from '../../package.json';
import { pack, root, type Tarball } from './consumer.js';
import { doors } from './expectations.js';

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as typeof Manifest;

describe('The tarball', () => {
  let directory: string;
  let tarball: Tarball;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'cmdx-tarball-'));
    tarball = await pack(directory);
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  it('is packed without a warning', () => {
    expect(tarball.warnings).toBe('');
  });

  it('holds the two builds and four documents, nothing else', () => {
    const documents = ['CHANGELOG.md', 'LICENSE', 'README.md', 'package.json'];
    const others = tarball.paths.filter(
      (path) =>
        path !== 'dist/cjs/package.json' && !/^dist\/(esm|cjs)\/.+\.(js|js\.map|d\.ts)$/.test(path),
    );
    expect(others.toSorted()).toEqual(documents);
  });

  it('holds every module twice, each with its types', () => {
    const modules = (build: string, suffix: string) =>
      tarball.paths
        .filter((path) => path.startsWith(`dist/${build}/`) && path.endsWith(suffix))
        .map((path) => path.slice(`dist/${build}/`.length, -suffix.length))
        .toSorted();
    const compiled = modules('esm', '.js');
    expect(compiled).toContain('index');
    expect(modules('esm', '.d.ts')).toEqual(compiled);
    expect(modules('cjs', '.js')).toEqual(compiled);
    expect(modules('cjs', '.d.ts')).toEqual(compiled);
  });

  it.each(doors)('opens %s to import, to require and to both at once, types first', (door) => {
    const conditions = Object.entries(manifest.exports[door]);
    expect(conditions.map(([condition]) => condition)).toEqual([
      'module-sync',
      'import',
      'require',
    ]);
    for (const [condition, target] of conditions) {
      expect(Object.keys(target)).toEqual(['types', 'default']);
      for (const path of Object.values(target)) {
        expect(path).toMatch(condition === 'require' ? /^\.\/dist\/cjs\// : /^\.\/dist\/esm\//);
        expect(tarball.paths).toContain(path.slice(2));
      }
    }
  });

  it('has no door that is not tested here', () => {
    expect(Object.keys(manifest.exports)).toEqual([...doors, './package.json']);
  });

  it('points tools that do not read exports at the CJS build', () => {
    const targets = [
      manifest.main,
      manifest.types,
      ...Object.values(manifest.typesVersions['*']).flat(),
    ];
    for (const path of targets) {
      expect(path).toMatch(/^\.\/dist\/cjs\//);
      expect(tarball.paths).toContain(path.slice(2));
    }
    expect(Object.keys(manifest.typesVersions['*']).map((name) => `./${name}`)).toEqual(
      doors.slice(1),
    );
  });

  it('keeps the bypass, which works by being imported, from being shaken out', () => {
    const kept = manifest.sideEffects.map((pattern) => pattern.slice(2).replace('*', '(esm|cjs)'));
    const files = tarball.paths.filter((path) => kept.some((like) => path.match(`^${like}$`)));
    expect(files.toSorted()).toEqual(
      ['cjs', 'esm'].map((build) => `dist/${build}/testing/bypass.js`),
    );
  });

  it('asks only for a node that knows module-sync and can require ESM', () => {
    expect(manifest.engines.node).toBe('^20.19.0 || ^22.12.0 || >=24.0.0');
  });
});
