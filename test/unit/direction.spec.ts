import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import ts from 'typescript';

/** Every room imports itself and the rooms after it, types included; the root's `cmdx.*` files are one room. */
const ROOMS = [
  'cmdx',
  'boot',
  'decorators',
  'metadata',
  'plan',
  'envelope',
  'row-lock',
  'keys',
  'policies',
  'store',
  'telemetry',
  'clock',
  'errors',
] as const;
/** Beside the line: words the replies of HTTP, for the root only. */
const TRANSPORT = 'transport';
/** Words that everybody may use, and that use nothing but each other. */
const VOCABULARY = [
  'answer.ts',
  'awaitable.ts',
  'bag.ts',
  'bytes.ts',
  'invocation.ts',
  'process-wide.ts',
];
/** Doors: they may import everything, and nobody imports them. */
const DOORS = ['index.ts', 'row-lock.ts', 'testing'];

/** Which rooms may run code of a package. Types of Nest, rxjs and the specification may be named anywhere. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  '@nestjs/common': ['cmdx', 'boot', 'decorators', TRANSPORT, 'telemetry', 'errors'],
  '@nestjs/core': ['cmdx', 'boot', TRANSPORT],
  rxjs: ['cmdx', 'decorators', 'metadata', 'envelope'],
  seroval: ['policies'],
  'safe-stable-stringify': ['keys'],
  ioredis: ['store/redis'],
  '@standard-schema/spec': [],
};
const OPTIONAL_PEERS = ['ioredis'];

interface Import {
  /** Path below lib/. */
  readonly from: string;
  /** Path below lib/ or, for a package, its name. */
  readonly to: string;
  readonly local: boolean;
  readonly typeOnly: boolean;
}

describe('does lib/ import in one direction?', () => {
  const imports = sources('lib').flatMap((file) =>
    importsOf(file, readFileSync(join('lib', file), 'utf8')),
  );

  it('rooms import only themselves and what stands to their right', () => {
    expect(imports.filter((each) => each.local).length).toBeGreaterThan(100);
    expect(imports.flatMap(wrongDirection)).toEqual([]);
  });

  it('packages run only where they belong', () => {
    expect(imports.filter((each) => !each.local).length).toBeGreaterThan(30);
    expect(imports.flatMap(wrongPackage)).toEqual([]);
  });

  it('every room stands in the line', () => {
    const known = new Set<string>([...ROOMS, TRANSPORT, ...DOORS, ...VOCABULARY]);
    expect([...new Set(sources('lib').map(roomOf))].filter((room) => !known.has(room))).toEqual([]);
  });

  it('an optional peer is reached through its own subpath only', () => {
    for (const door of ['index.ts', 'testing/index.ts', 'testing/bypass.ts']) {
      const reached = reachableFrom(door, imports);
      expect(reached.size).toBeGreaterThan(1);
      expect(OPTIONAL_PEERS.filter((peer) => reached.has(peer))).toEqual([]);
    }
    expect(reachableFrom('store/redis/index.ts', imports)).toContain('ioredis');
  });
});

describe('would it be noticed?', () => {
  it.each([
    ['store/store.ts', "import { Run } from '../envelope/run.js';"],
    ['store/store.ts', "import type { Run } from '../envelope/run.js';"],
    ['store/store.ts', "type Run = import('../envelope/run.js').Run;"],
    ['keys/input.ts', "const run = await import('../envelope/run.js');"],
    ['envelope/run.ts', "export { compilePlan } from '../plan/compiler.js';"],
    ['boot/planner.ts', "import { CmdxModule } from '../cmdx.module.js';"],
    ['transport/http.ts', "import { Run } from '../envelope/run.js';"],
    ['boot/planner.ts', "import { skippedBody } from '../transport/http.js';"],
    ['awaitable.ts', "import type { Store } from './store/store.js';"],
    ['clock/clock.ts', "import { ManualClock } from '../testing/index.js';"],
    ['clock/clock.ts', "import '../index.js';"],
    ['clock/clock.ts', "import { x } from '../../sample-app/main.js';"],
    ['clock/clock.ts', "import { x } from '../../test/support/time.js';"],
  ])('%s: %s', (file, text) => {
    expect(importsOf(file, text).flatMap(wrongDirection)).toHaveLength(1);
  });

  it.each([
    ['plan/gates.ts', "import { Logger } from '@nestjs/common';"],
    ['plan/gates.ts', "import { type Type, Logger } from '@nestjs/common';"],
    ['store/memory/memory.store.ts', "import { Redis } from 'ioredis';"],
    ['store/memory/memory.store.ts', "import type { Redis } from 'ioredis';"],
    ['keys/input.ts', "import { of } from 'rxjs';"],
    ['keys/input.ts', "import { readFile } from 'fs';"],
    ['errors/brand.ts', "import { merge } from 'lodash';"],
    ['errors/brand.ts', "const { merge } = require('lodash');"],
  ])('%s: %s', (file, text) => {
    expect(importsOf(file, text).flatMap(wrongPackage)).toHaveLength(1);
  });

  it.each([
    ['plan/gates.ts', "import type { Type } from '@nestjs/common';"],
    ['plan/gates.ts', "import { type Type } from '@nestjs/common';"],
    ['plan/gates.ts', "import { types } from 'node:util';"],
    ['store/redis/link.ts', "import { Redis } from 'ioredis';"],
    ['envelope/run.ts', "import { toSegment } from '../keys/store-key.js';"],
    ['errors/brand.ts', "import { once } from '../process-wide.js';"],
    ['testing/index.ts', "import { Run } from '../envelope/run.js';"],
  ])('%s may say: %s', (file, text) => {
    const [found, ...others] = importsOf(file, text);
    expect(others).toEqual([]);
    expect([...wrongDirection(found as Import), ...wrongPackage(found as Import)]).toEqual([]);
  });
});

function wrongDirection({ from, to, local }: Import): string[] {
  if (!local) return [];
  const [user, used] = [roomOf(from), roomOf(to)];
  if (user === used || DOORS.includes(user)) return [];
  if (VOCABULARY.includes(used)) return [];
  if (user === TRANSPORT) return used === 'errors' ? [] : [`${from} imports ${to}`];
  if (user === 'cmdx' && used === TRANSPORT) return [];
  const [left, right] = [ROOMS.indexOf(user as 'cmdx'), ROOMS.indexOf(used as 'cmdx')];
  return left >= 0 && right > left ? [] : [`${from} imports ${to}`];
}

function wrongPackage({ from, to, local, typeOnly }: Import): string[] {
  if (local || to.startsWith('node:') || DOORS.includes(roomOf(from))) return [];
  const rooms = PACKAGES[to];
  const here = rooms?.some((room) => roomOf(from) === room || from.startsWith(`${room}/`));
  const named = rooms !== undefined && typeOnly && !OPTIONAL_PEERS.includes(to);
  return here || named ? [] : [`${from} imports ${typeOnly ? 'types of ' : ''}${to}`];
}

function roomOf(file: string): string {
  if (file.includes('/')) return file.slice(0, file.indexOf('/'));
  return file.startsWith('cmdx.') ? 'cmdx' : file;
}

function reachableFrom(door: string, imports: readonly Import[]): ReadonlySet<string> {
  const reached = new Set([door]);
  for (const file of reached) {
    for (const { from, to } of imports) if (from === file) reached.add(to);
  }
  return reached;
}

function sources(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.ts'),
  );
}

/** Everything a source text imports or re-exports, in whatever form. */
function importsOf(from: string, text: string): Import[] {
  const found: Import[] = [];
  const add = (specifier: ts.Node | undefined, typeOnly: boolean): void => {
    if (!specifier || !ts.isStringLiteral(specifier)) return;
    const local = specifier.text.startsWith('.');
    const path = normalize(join(dirname(from), specifier.text)).replace(/\.js$/, '.ts');
    found.push({ from, to: local ? path : specifier.text, local, typeOnly });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, isTypeOnly(node.importClause));
    else if (ts.isExportDeclaration(node)) add(node.moduleSpecifier, node.isTypeOnly);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) {
      add(node.argument.literal, true);
    } else if (ts.isCallExpression(node) && loads(node.expression)) add(node.arguments[0], false);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(from, text, ts.ScriptTarget.ESNext));
  return found;
}

function loads(callee: ts.Expression): boolean {
  return (
    callee.kind === ts.SyntaxKind.ImportKeyword ||
    (ts.isIdentifier(callee) && callee.text === 'require')
  );
}

function isTypeOnly(clause: ts.ImportClause | undefined): boolean {
  if (!clause) return false;
  if (clause.phaseModifier === ts.SyntaxKind.TypeKeyword) return true;
  const { name, namedBindings } = clause;
  return (
    name === undefined &&
    namedBindings !== undefined &&
    ts.isNamedImports(namedBindings) &&
    namedBindings.elements.every((element) => element.isTypeOnly)
  );
}
