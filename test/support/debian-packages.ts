import { execFileSync, spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { arch } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What the tests fetch or make once; git does not see it. */
export const CACHE = resolve(dirname(fileURLToPath(import.meta.url)), '../../.cache');

/** A program that Debian packages, for machines that do not have it. */
export interface DebianProgram {
  /** What it is called, for the person who reads what is fetched and why. */
  readonly name: string;
  /** Where it is unpacked. */
  readonly folder: string;
  readonly packages: readonly string[];
  /** Which of their dependencies belong to the program itself; libraries are found by themselves. */
  readonly parts?: RegExp;
  /** What has to run, below the folder that everything is unpacked into. */
  binaries(root: string): readonly string[];
}

/**
 * Unpacks a program into its folder: nothing is installed, no rights are needed. Called once, before
 * the first test process starts.
 *
 * @throws Error where that is not possible
 */
export function unpackProgram(program: DebianProgram): void {
  const { name, folder } = program;
  const work = `${folder}.${process.pid}`;
  mkdirSync(work, { recursive: true });
  console.log(`No ${name} found: unpacking Debian's package into ${folder} for the tests.`);
  try {
    const root = join(work, 'root');
    unpack(program, root, new Apt(work));
    // Another run may have been faster; its result is as good.
    if (!existsSync(folder)) renameSync(root, folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** What a process needs in its environment to find the libraries that were unpacked with it. */
export function libraryPath(root: string): { readonly LD_LIBRARY_PATH: string } {
  // Older packages have libraries below /lib.
  const folders = ['usr/lib', 'lib'].map((folder) => join(root, folder, `${machine()}-linux-gnu`));
  return { LD_LIBRARY_PATH: folders.join(delimiter) };
}

export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function unpack({ packages, parts, binaries }: DebianProgram, root: string, apt: Apt): void {
  const depends = new Set(packages.flatMap((name) => apt.unpack(name, root)));
  const add = (name: string): void => {
    for (const further of apt.unpack(name, root)) depends.add(further);
  };
  if (parts) [...depends].filter((name) => parts.test(name)).forEach(add);
  // A library that was unpacked may itself miss some.
  for (let found = true; found;) {
    const names = missingLibraries(root, binaries(root)).flatMap((library) =>
      [...depends].filter((name) => !apt.has(name) && provides(name, library)),
    );
    found = names.length > 0;
    new Set(names).forEach(add);
  }
  const env = { ...process.env, ...libraryPath(root) };
  for (const binary of binaries(root)) execFileSync(binary, ['--version'], { env });
}

/** Debian's package manager, used as a downloader only. */
class Apt {
  /** Package lists of our own, fetched when the system has none. */
  #options: string[] = [];
  readonly #unpacked = new Set<string>();

  constructor(private readonly work: string) {}

  has(name: string): boolean {
    return this.#unpacked.has(name);
  }

  /** @returns the names of the packages it depends on */
  unpack(name: string, root: string): string[] {
    console.log(`  fetching ${name}`);
    this.#unpacked.add(name);
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

function machine(): string {
  return { x64: 'x86_64', arm64: 'aarch64' }[arch() as string] ?? arch();
}

function missingLibraries(root: string, binaries: readonly string[]): string[] {
  const { stdout } = spawnSync('ldd', [...binaries], {
    encoding: 'utf8',
    env: { ...process.env, ...libraryPath(root) },
  });
  return [...stdout.matchAll(/^\s*(\S+) => not found/gm)].map(([, library]) => library ?? '');
}

/** Libraries that lie in the package of another one. */
const PACKAGED_WITH: Readonly<Record<string, string>> = {
  libcrypto: 'libssl',
  libicudata: 'libicu',
  libicui18n: 'libicu',
  libicuuc: 'libicu',
  liblber: 'libldap',
  libz: 'zlib',
};

/** Debian names a library's package after the library: libcom_err.so.2 is in libcom-err2. */
function provides(packageName: string, library: string): boolean {
  const stem = (library.split('.so')[0] ?? library).replace(/-[\d.]+$/, '');
  return packageName.startsWith((PACKAGED_WITH[stem] ?? stem).replaceAll('_', '-'));
}
