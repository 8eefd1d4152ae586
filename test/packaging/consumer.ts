import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const execute = promisify(execFile);
const packaging = import.meta.dirname;
export const root = join(packaging, '../..');

export interface Output {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Tarball {
  readonly file: string;
  /** Paths inside the package, as npm lists them. */
  readonly paths: readonly string[];
  readonly warnings: string;
}

/** Packs what `npm run build` left in `dist`, as `npm publish` would. */
export async function pack(into: string): Promise<Tarball> {
  if (!existsSync(join(root, 'dist/esm')) || !existsSync(join(root, 'dist/cjs'))) {
    throw new Error('There is nothing to pack: run `npm run build` first.');
  }
  const flags = ['--json', '--ignore-scripts', '--pack-destination', into];
  const { stdout, stderr } = await must(npm(root, 'pack', ...flags));
  const [packed] = JSON.parse(stdout) as [{ filename: string; files: { path: string }[] }];
  return {
    file: join(into, packed.filename),
    paths: packed.files.map(({ path }) => path),
    warnings: stderr,
  };
}

/**
 * An application of its own, outside the repository, with the package installed from its tarball.
 * `consumers/<name>` holds its package.json; each of `parts` is a folder of `consumers` that is
 * copied beside it, `'esm+app'` being `app` with the settings of `esm`.
 */
export class Consumer {
  private constructor(readonly directory: string) {}

  static async install(name: string, parts: readonly string[]): Promise<Consumer> {
    const directory = await mkdtemp(join(tmpdir(), `cmdx-${name}-`));
    const consumer = new Consumer(directory);
    try {
      await cp(join(packaging, 'consumers', name), directory, { recursive: true });
      for (const part of parts) {
        const [target, ...sources] = part.split('+') as [string, ...string[]];
        for (const source of [target, ...sources]) {
          await cp(join(packaging, 'consumers', source), join(directory, target), {
            recursive: true,
          });
        }
      }
      const { file } = await pack(directory);
      await must(
        npm(
          directory,
          'install',
          '--prefer-offline',
          '--no-audit',
          '--no-fund',
          '--strict-peer-deps',
          file,
        ),
      );
      return consumer;
    } catch (error) {
      await consumer.remove();
      throw error;
    }
  }

  /** The version of an installed package. */
  async version(name: string): Promise<string> {
    const path = join(this.directory, 'node_modules', name, 'package.json');
    return (JSON.parse(await readFile(path, 'utf8')) as { version: string }).version;
  }

  /** Runs the consumer's own compiler in one of its parts. */
  tsc(part: string, ...flags: string[]): Promise<Output> {
    const compiler = join(this.directory, 'node_modules/typescript/bin/tsc');
    return run(process.execPath, [compiler, '-p', '.', ...flags], join(this.directory, part));
  }

  node(part: string, ...args: string[]): Promise<Output> {
    return run(process.execPath, args, join(this.directory, part));
  }

  /** Runs a script of a part, which prints what it saw as JSON on its last line. */
  async report<T>(part: string, ...args: string[]): Promise<T> {
    const { stdout } = await must(this.node(part, ...args));
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as T;
  }

  npm(...args: string[]): Promise<Output> {
    return npm(this.directory, ...args);
  }

  async remove(): Promise<void> {
    await rm(this.directory, { recursive: true, force: true });
  }
}

export async function must(output: Promise<Output>): Promise<Output> {
  const { code, stdout, stderr } = await output;
  if (code !== 0) throw new Error(`exit code ${code}\n${stdout}\n${stderr}`);
  return { code, stdout, stderr };
}

function npm(cwd: string, ...args: string[]): Promise<Output> {
  return run('npm', args, cwd);
}

async function run(file: string, args: string[], cwd: string): Promise<Output> {
  try {
    const { stdout, stderr } = await execute(file, args, {
      cwd,
      env: foreignEnvironment(),
      timeout: 120_000,
      maxBuffer: 64 * 1024 * 1024,
      shell: file === 'npm' && process.platform === 'win32',
    });
    return { code: 0, stdout, stderr };
  } catch (error) {
    const { code, stdout = '', stderr = '', message } = error as Error & Partial<Output>;
    return typeof code === 'number'
      ? { code, stdout, stderr }
      : { code: -1, stdout, stderr: `${stderr}\n${message}` };
  }
}

/**
 * The environment without what points back here: npm hands the project it runs in on to its
 * children, and a test runner its own mode and node flags.
 */
function foreignEnvironment(): NodeJS.ProcessEnv {
  const own =
    /^(npm_(package|lifecycle|config_local_prefix)|INIT_CWD$|NODE_(ENV|PATH|OPTIONS)$|JEST_)/;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !own.test(name)));
}
