import { execFileSync, spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { arch } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface RedisBinary {
  readonly command: string;
  /** Added to the environment of the process. */
  readonly env: Readonly<Record<string, string>>;
}

const CACHE = resolve(dirname(fileURLToPath(import.meta.url)), '../../.cache');
const UNPACKED = join(CACHE, 'redis');
const HOW_TO =
  'The tests need redis-server: install it (for example "sudo apt-get install redis-server"), ' +
  'or set REDIS_SERVER to the path of its binary.';

/** A usable redis-server: `REDIS_SERVER`, one on PATH, or the one unpacked before. */
export function findRedis(): RedisBinary | undefined {
  const { REDIS_SERVER } = process.env;
  if (REDIS_SERVER) return { command: REDIS_SERVER, env: {} };
  const onPath = (process.env['PATH'] ?? '')
    .split(delimiter)
    .map((folder) => join(folder, 'redis-server'))
    .find(isExecutable);
  if (onPath) return { command: onPath, env: {} };
  return existsSync(UNPACKED) ? unpackedIn(UNPACKED) : undefined;
}

/** Like {@link findRedis}, but with one sentence to type when there is none. */
export function requireRedis(): RedisBinary {
  const found = findRedis();
  if (!found) throw new Error(HOW_TO);
  return found;
}

/**
 * Makes sure that there is a redis-server, if need be by unpacking Debian's packages into the
 * project's cache folder: nothing is installed, no rights are needed. Called once, before the first
 * test process starts.
 *
 * @throws Error with the command to type where that is not possible
 */
export function prepareRedis(): void {
  if (findRedis()) return;
  const work = join(CACHE, `redis.${process.pid}`);
  mkdirSync(work, { recursive: true });
  console.log(
    `No redis-server on PATH: unpacking Debian's package into ${UNPACKED} for the tests.`,
  );
  try {
    unpack(work);
    // Another run may have been faster; its result is as good.
    if (!existsSync(UNPACKED)) renameSync(join(work, 'root'), UNPACKED);
  } catch (error) {
    throw new Error(HOW_TO, { cause: error });
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

function unpack(work: string): void {
  const root = join(work, 'root');
  const apt = new Apt(work);
  const depends = ['redis-server', 'redis-tools'].flatMap((name) => apt.unpack(name, root));
  for (const library of missingLibraries(root)) {
    const name = depends.find((candidate) => provides(candidate, library));
    if (name) apt.unpack(name, root);
  }
  const { command, env } = unpackedIn(root);
  execFileSync(command, ['--version'], { env: { ...process.env, ...env }, stdio: 'ignore' });
}

/** Debian's package manager, used as a downloader only. */
class Apt {
  /** Package lists of our own, fetched when the system has none. */
  #options: string[] = [];

  constructor(private readonly work: string) {}

  /** @returns the names of the packages it depends on */
  unpack(name: string, root: string): string[] {
    console.log(`  fetching ${name}`);
    const folder = join(this.work, name);
    mkdirSync(folder, { recursive: true });
    this.#download(name, folder);
    const [file] = execFileSync('ls', [folder], { encoding: 'utf8' }).split('\n');
    const deb = join(folder, file ?? '');
    execFileSync('dpkg-deb', ['-x', deb, root]);
    const depends = execFileSync('dpkg-deb', ['-f', deb, 'Depends'], { encoding: 'utf8' });
    return depends.split(/[,|]/).map((entry) => entry.trim().split(/[\s:(]/)[0] ?? '');
  }

  #download(name: string, folder: string): void {
    if (this.#get(name, folder)) return;
    if (this.#options.length === 0) this.#updateOwnLists();
    if (!this.#get(name, folder)) throw new Error(`apt-get could not download ${name}`);
  }

  #get(name: string, folder: string): boolean {
    const options = { cwd: folder, stdio: 'ignore' } as const;
    return spawnSync('apt-get', [...this.#options, 'download', name], options).status === 0;
  }

  #updateOwnLists(): void {
    console.log('  fetching the package lists');
    const state = join(this.work, 'apt');
    mkdirSync(join(state, 'lists/partial'), { recursive: true });
    mkdirSync(join(state, 'cache/archives/partial'), { recursive: true });
    this.#options = [`-oDir::State=${state}`, `-oDir::Cache=${join(state, 'cache')}`];
    execFileSync('apt-get', [...this.#options, 'update'], { stdio: 'ignore' });
  }
}

function unpackedIn(root: string): RedisBinary {
  return {
    command: join(root, 'usr/bin/redis-server'),
    env: { LD_LIBRARY_PATH: join(root, 'usr/lib', `${machine()}-linux-gnu`) },
  };
}

function machine(): string {
  return { x64: 'x86_64', arm64: 'aarch64' }[arch() as string] ?? arch();
}

function missingLibraries(root: string): string[] {
  const { command, env } = unpackedIn(root);
  const { stdout } = spawnSync('ldd', [command], {
    encoding: 'utf8',
    env: { ...process.env, ...env },
  });
  return [...stdout.matchAll(/^\s*(\S+) => not found/gm)].map(([, library]) => library ?? '');
}

/** Debian names a library's package after the library: libjemalloc.so.2 is in libjemalloc2. */
function provides(packageName: string, library: string): boolean {
  const stem = library.split('.so')[0] ?? library;
  return packageName.startsWith(stem === 'libcrypto' ? 'libssl' : stem);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
