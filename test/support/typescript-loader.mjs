import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { swcOptions } from './swc-options.mjs';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** What each file was compiled to the last time: a process starts sooner without the compiler. */
const COMPILED = join(ROOT, '.cache/typescript');

/** Lets Node import the sources: `./x.js` finds `x.ts`, and TypeScript is compiled as in the tests. */
export async function resolve(specifier, context, next) {
  if (/^\.{1,2}\/.*\.js$/.test(specifier)) {
    const url = new URL(specifier.replace(/\.js$/, '.ts'), context.parentURL);
    if (existsSync(url)) return { url: url.href, format: 'module', shortCircuit: true };
  }
  return next(specifier, context);
}

export async function load(url, context, next) {
  if (!url.endsWith('.ts')) return next(url, context);
  return { format: 'module', source: await compile(fileURLToPath(url)), shortCircuit: true };
}

async function compile(file) {
  const text = readFileSync(file, 'utf8');
  const from = createHash('sha1')
    .update(JSON.stringify([text, swcOptions]))
    .digest('hex');
  const cached = join(COMPILED, `${relative(ROOT, file).replaceAll(/\W+/g, '-')}.js`);
  const known = existsSync(cached) ? readFileSync(cached, 'utf8') : '';
  if (known.endsWith(from)) return known;
  const { transform } = await import('@swc/core');
  const { code } = await transform(text, { ...swcOptions, filename: file });
  keep(cached, `${code}\n// ${from}`);
  return code;
}

/** Several processes may do so at once: none of them may read what another has half written. */
function keep(file, text) {
  mkdirSync(COMPILED, { recursive: true });
  writeFileSync(`${file}.${process.pid}`, text);
  renameSync(`${file}.${process.pid}`, file);
}
