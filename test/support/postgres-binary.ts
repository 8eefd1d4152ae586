import { execFile, spawnSync } from 'node:child_process';
import {
  chownSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { CACHE, isExecutable, libraryPath, unpackProgram } from './debian-packages.js';

/** How to run the programs of a Postgres server. */
export interface PostgresBinary {
  /** Where they are. */
  readonly folder: string;
  /** For example `postgres (PostgreSQL) 15.20`. */
  readonly version: string;
  /** Of the process. */
  readonly options: {
    readonly env: NodeJS.ProcessEnv;
    readonly uid?: number;
    readonly gid?: number;
  };
}

const run = promisify(execFile);

const HOW_TO =
  'The tests need a Postgres server: install it (for example "sudo apt-get install postgresql"), ' +
  'or set POSTGRES_BIN to the folder with its programs postgres and initdb.';

/** Postgres refuses to run as root, who therefore runs it as "nobody": not every machine has the name. */
const ROOT = process.getuid?.() === 0;
const NOBODY = 65_534;
/** "Nobody" cannot look into the folders of root. */
const UNPACKED =
  ROOT && !isOpenToAll(dirname(CACHE))
    ? join(tmpdir(), 'nestjs-cmdx-postgres')
    : join(CACHE, 'postgres');

let found: PostgresBinary | undefined;

/** A usable Postgres: in `POSTGRES_BIN`, on PATH, where Debian installs it, or unpacked before. */
export function findPostgres(): PostgresBinary | undefined {
  if (found) return found;
  const { POSTGRES_BIN, PATH = '' } = process.env;
  const onPath = PATH.split(delimiter)
    .map((folder) => join(folder, 'postgres'))
    .filter(isExecutable)
    .map((program) => dirname(realpathSync(program)));
  const folders = POSTGRES_BIN ? [POSTGRES_BIN] : [...onPath, ...debian('/'), ...debian(UNPACKED)];
  const folder = folders.find((candidate) => isExecutable(join(candidate, 'initdb')));
  found = folder === undefined ? undefined : binaryIn(folder);
  return found;
}

/** Like {@link findPostgres}, but with one sentence to type when there is none. */
export function requirePostgres(): PostgresBinary {
  const binary = findPostgres();
  if (!binary) throw new Error(HOW_TO);
  return binary;
}

/**
 * Makes sure that there is a Postgres, if need be one that is unpacked for the tests, and the data
 * folder that its servers begin with.
 *
 * @throws Error with the command to type where that is not possible
 */
export async function preparePostgres(): Promise<void> {
  try {
    if (!findPostgres()) {
      unpackProgram({
        name: 'Postgres server',
        folder: UNPACKED,
        packages: ['postgresql'],
        parts: /^postgresql-\d+$/,
        binaries: (root) =>
          debian(root).flatMap((folder) => [join(folder, 'postgres'), join(folder, 'initdb')]),
      });
    }
    await postgresTemplate();
  } catch (error) {
    throw new Error(`${HOW_TO}\n${String(error)}`, { cause: error });
  }
}

/** A folder of a server's own, which belongs to the user who runs it. */
export function makeServerFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'postgres-test-'));
  if (ROOT) chownSync(folder, NOBODY, NOBODY);
  return folder;
}

/** The data folder of an empty server, made once per version: `initdb` takes longer than a start. */
export async function postgresTemplate(): Promise<string> {
  const { folder: programs, version, options } = requirePostgres();
  const name = `${version}${ROOT ? ' of nobody' : ''}`.replace(/[^\w.]+/g, '-');
  const template = join(CACHE, 'postgres-data', name);
  if (existsSync(template)) return template;
  const folder = makeServerFolder();
  try {
    const data = join(folder, 'data');
    const cluster = ['-D', data, '--locale=C', '--encoding=UTF8', '--wal-segsize=1', '--no-sync'];
    const access = ['--auth=trust', '--username=postgres'];
    await run(join(programs, 'initdb'), [...cluster, ...access], { ...options, cwd: folder });
    mkdirSync(dirname(template), { recursive: true });
    const copy = `${template}.${process.pid}`;
    await copyFolder(data, copy);
    // Another process may have been faster; its result is as good.
    if (existsSync(template)) rmSync(copy, { recursive: true });
    else renameSync(copy, template);
    return template;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Copies with owner and rights, on which the server insists. */
export async function copyFolder(from: string, to: string): Promise<void> {
  await run('cp', ['-a', from, to]);
}

function binaryIn(folder: string): PostgresBinary {
  // What a machine sets for its own servers does not count here.
  const env = {
    PATH: process.env['PATH'],
    LC_ALL: 'C',
    TZ: 'GMT',
    ...(folder.startsWith(UNPACKED) && libraryPath(UNPACKED)),
  };
  const program = join(folder, 'postgres');
  const options = { env, ...(ROOT && { uid: NOBODY, gid: NOBODY }) };
  const { stdout, error } = spawnSync(program, ['--version'], {
    ...options,
    cwd: '/',
    encoding: 'utf8',
  });
  if (!stdout) throw new Error(`${program} does not run`, { cause: error });
  return { folder, version: stdout.trim(), options };
}

function isOpenToAll(folder: string): boolean {
  const isOpen = (statSync(folder).mode & constants.S_IXOTH) !== 0;
  return isOpen && (folder === dirname(folder) || isOpenToAll(dirname(folder)));
}

/** Where Debian's packages have the programs, newest first. */
function debian(root: string): string[] {
  const folder = join(root, 'usr/lib/postgresql');
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .toSorted((a, b) => Number(b) - Number(a))
    .map((version) => join(folder, version, 'bin'));
}
