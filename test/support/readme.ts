import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A fenced block of README.md. */
export interface Snippet {
  /** The nearest heading above it. */
  readonly heading: string;
  readonly language: string;
  readonly text: string;
}

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

const FENCED = /^(#{2,3}) (.+)$|^```(\w+)\n([\s\S]*?)^```$/gm;

export function snippets(language: string): readonly Snippet[] {
  const found: Snippet[] = [];
  let heading = '';
  for (const [, level, title, fence, text] of README.matchAll(FENCED)) {
    if (level) heading = title ?? '';
    else if (fence === language) found.push({ heading, language, text: text ?? '' });
  }
  return found;
}

/** The first cells of a table's rows under a heading, split at commas, without backticks. */
export function firstCells(heading: string): readonly string[] {
  const [, rest = ''] = README.split(new RegExp(`^#+ ${heading}\n`, 'm'));
  const [section = ''] = rest.split(/^#{2,3} /m);
  const rows = [...section.matchAll(/^\| ([^|]+) \|/gm)].map(([, cell]) => cell ?? '');
  return rows.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name ?? ''));
}

const FOLDER = join(ROOT, '.cache/readme');

/** Writes each snippet into a file of its own, where it can be compiled and imported. @returns their paths */
export function writeSnippets(list: readonly Snippet[]): ReadonlyMap<string, string> {
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  return new Map(
    list.map(({ heading, text }) => {
      const file = join(FOLDER, `${heading.toLowerCase().replace(/\W+/g, '-')}.ts`);
      // Two snippets under one heading would overwrite each other.
      writeFileSync(file, text, { flag: 'wx' });
      return [heading, file];
    }),
  );
}

/** Compiles what `writeSnippets` has written, as strictly as the library. @returns the compiler's complaints */
export function compileSnippets(): Promise<string> {
  const config = { extends: '../../tsconfig.json', include: ['*.ts'], exclude: [] };
  writeFileSync(join(FOLDER, 'tsconfig.json'), JSON.stringify(config));
  const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
  return new Promise((resolve) =>
    execFile(process.execPath, [compiler, '-p', FOLDER], (error, stdout, stderr) =>
      resolve(error ? `${stdout}${stderr}` || String(error) : ''),
    ),
  );
}
