import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A fenced block of a page. */
export interface Snippet {
  /** The nearest heading above it. */
  readonly heading: string;
  readonly language: string;
  readonly text: string;
}

/** A page of the documentation. */
export interface Page {
  /** From the root of the project. */
  readonly path: string;
  readonly text: string;
}

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const README = readPage('README.md');
export const RECIPES = readPage('docs/recipes.md');
export const LIFECYCLE = readPage('docs/lifecycle.md');

function readPage(path: string): Page {
  return { path, text: readFileSync(join(ROOT, path), 'utf8') };
}

const FENCED = /^(#{2,3}) (.+)$|^```(\w+)\n([\s\S]*?)^```$/gm;

export function snippets(page: Page, language: string): readonly Snippet[] {
  const found: Snippet[] = [];
  let heading = '';
  for (const [, level, title, fence, text] of page.text.matchAll(FENCED)) {
    if (level) heading = title ?? '';
    else if (fence === language) found.push({ heading, language, text: text ?? '' });
  }
  return found;
}

/** The cells of the rows of all tables under a heading, without those that name the columns. */
export function tableRows(page: Page, heading: string): readonly (readonly string[])[] {
  const [, rest = ''] = page.text.split(new RegExp(`^#+ ${heading}\n`, 'm'));
  const [section = ''] = rest.split(/^#{2,3} /m);
  const lines = section.split('\n');
  const isRow = (line = '') => line.startsWith('|') && !line.startsWith('| -');
  return lines
    .filter((line, position) => isRow(line) && !lines[position + 1]?.startsWith('| -'))
    .map((line) => line.split(/(?<!\\)\|/).slice(1, -1))
    .map((cells) => cells.map((cell) => cell.trim()));
}

/** The words between backticks in the first cells of a table's rows under a heading. */
export function firstCells(page: Page, heading: string): readonly string[] {
  return tableRows(page, heading).flatMap(([first = '']) =>
    [...first.matchAll(/`(\w+)`/g)].map(([, name]) => name ?? ''),
  );
}

/** Links of a page that lead nowhere: to no heading, or to no file. Those into the web are not followed. */
export function deadLinks(page: Page): readonly string[] {
  const prose = page.text.replace(/^```[\s\S]*?^```$/gm, '');
  const links = [...prose.matchAll(/\]\(([^)]+)\)/g)].map(([, link]) => link ?? '');
  const [folder] = /^.*\/|^/.exec(page.path) ?? [];
  return links.filter((link) => {
    if (link.startsWith('https://')) return false;
    const [path = '', anchor] = link.split('#');
    try {
      const target = path === '' ? page : readPage(join(folder ?? '', path));
      return anchor !== undefined && !anchorsOf(target).includes(anchor);
    } catch (error) {
      // A folder is a place to go, too.
      return (error as NodeJS.ErrnoException).code !== 'EISDIR';
    }
  });
}

function anchorsOf({ text }: Page): readonly string[] {
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
}

/**
 * Writes each snippet into a file of its own, where it can be compiled and imported.
 *
 * @param name of the folder; each test file needs one for itself
 * @returns the paths by heading
 */
export function writeSnippets(name: string, list: readonly Snippet[]): ReadonlyMap<string, string> {
  const folder = folderOf(name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return new Map(
    list.map(({ heading, text }) => {
      const file = join(folder, `${heading.toLowerCase().replace(/\W+/g, '-')}.ts`);
      // Two snippets under one heading would overwrite each other.
      writeFileSync(file, text, { flag: 'wx' });
      return [heading, file];
    }),
  );
}

function folderOf(name: string): string {
  return join(ROOT, '.cache', name);
}

/** Compiles what `writeSnippets` has written, as strictly as the library. @returns the compiler's complaints */
export function compileSnippets(name: string): Promise<string> {
  const folder = folderOf(name);
  const config = { extends: '../../tsconfig.json', include: ['*.ts'], exclude: [] };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
  return new Promise((resolve) =>
    execFile(process.execPath, [compiler, '-p', folder], (error, stdout, stderr) =>
      resolve(error ? `${stdout}${stderr}` || String(error) : ''),
    ),
  );
}
