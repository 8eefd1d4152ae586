import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { freePort } from './free-port.js';
import {
  copyFolder,
  makeServerFolder,
  postgresTemplate,
  requirePostgres,
} from './postgres-binary.js';

/** A Postgres server that tests may make databases on. */
export interface PostgresDatabases {
  /** The database `postgres` there, as its superuser. */
  readonly url: string;
  /** Makes an empty database. @returns its URL */
  createDatabase(): Promise<string>;
  /** Ends what was started, or drops the databases that were made. */
  stop(): Promise<void>;
}

/** A private Postgres server on a free loopback port. */
export interface PostgresServer extends PostgresDatabases {
  readonly port: number;
  /** Of the process that accepts connections; each connection has one of its own. */
  readonly pid: number;
  /** Where it writes its log. */
  readonly logFile: string;
  /** What it has logged. */
  log(): string;
  /** The statements it has logged, in order; see {@link PostgresOptions.logStatements}. */
  statements(): LoggedStatement[];
  /** Stops its answers and the acceptance of connections; sockets stay open (SIGSTOP). */
  freeze(): void;
  thaw(): void;
  /** Ends it and all its connections at once (SIGKILL); what was committed is kept. */
  kill(): Promise<void>;
  /** Starts it again on the same port, with its data. */
  restart(): Promise<void>;
}

export interface LoggedStatement {
  /** When, in milliseconds since 1970: by the clock that this process reads, too. */
  readonly at: number;
  /** Of the connection's process, as `pg_backend_pid()` tells it. */
  readonly pid: number;
  readonly sql: string;
}

export interface PostgresOptions {
  /** Logs every statement when it begins. */
  readonly logStatements?: boolean;
  /** More settings, for example `{ deadlock_timeout: '100ms' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

const ATTEMPTS = 5;
const START_WITHIN_MS = 30_000;

/** Durable enough: what is not written to a disk survives the server, if not the machine. */
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '100',
  shared_buffers: '16MB',
  // In its data folder, where a killed server leaves nothing behind.
  dynamic_shared_memory_type: 'mmap',
  fsync: 'off',
  full_page_writes: 'off',
  jit: 'off',
  // Seconds since 1970, and the process of the connection.
  log_line_prefix: '%n [%p] ',
};

export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  for (let attempt = 1; ; attempt += 1) {
    const server = new PrivatePostgres(await freePort(), options);
    try {
      await server.create();
      return server;
    } catch (error) {
      await server.stop();
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

/** For tests that need nothing but databases: on the server at `DATABASE_URL`, or on a private one. */
export async function borrowPostgres(): Promise<PostgresDatabases> {
  const { DATABASE_URL } = process.env;
  if (!DATABASE_URL) return startPostgres();
  const made: string[] = [];
  return {
    url: DATABASE_URL,
    async createDatabase() {
      const url = await createDatabase(DATABASE_URL);
      made.push(nameOf(url));
      return url;
    },
    async stop() {
      for (const name of made) await execute(DATABASE_URL, `DROP DATABASE ${name} WITH (FORCE)`);
    },
  };
}

class PrivatePostgres implements PostgresServer {
  readonly url: string;
  readonly logFile: string;
  readonly #folder = makeServerFolder();
  readonly #data = join(this.#folder, 'data');
  readonly #janitor = startJanitor(this.#folder);
  #child: ChildProcess | undefined;

  constructor(
    readonly port: number,
    private readonly options: PostgresOptions,
  ) {
    this.url = `postgres://postgres@127.0.0.1:${port}/postgres`;
    this.logFile = join(this.#folder, 'log');
  }

  get pid(): number {
    return this.#child?.pid ?? -1;
  }

  async create(): Promise<void> {
    await copyFolder(await postgresTemplate(), this.#data);
    await this.restart();
  }

  createDatabase(): Promise<string> {
    return createDatabase(this.url);
  }

  log(): string {
    return readFileSync(this.logFile, 'utf8');
  }

  statements(): LoggedStatement[] {
    // The lines of one statement after its first begin with a tab.
    const entries = this.log().matchAll(
      /^(\d+\.\d+) \[(\d+)\] LOG: {2}(?:statement|execute [^:]+): (.*(?:\n\t.*)*)/gm,
    );
    return Array.from(entries, ([, seconds, pid, sql = '']) => ({
      at: Number(seconds) * 1000,
      pid: Number(pid),
      sql: sql.replaceAll('\n\t', '\n'),
    }));
  }

  freeze(): void {
    // First the one that would start more.
    this.#child?.kill('SIGSTOP');
    this.#signal('SIGSTOP');
  }

  thaw(): void {
    this.#signal('SIGCONT');
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (!child || hasEnded(child)) return;
    const exited = once(child, 'exit');
    // Stopped first, so that it starts no more processes meanwhile.
    child.kill('SIGSTOP');
    const connections = this.#signal('SIGKILL');
    await exited;
    // A server does not start beside remains of the one before it.
    while (connections.some(isRunning)) await sleep(1);
    this.#janitor.watch(undefined);
  }

  async restart(): Promise<void> {
    await this.kill();
    const { logStatements, settings } = this.options;
    const statements = logStatements ? { log_statement: 'all' } : {};
    const assigned = Object.entries({
      ...SETTINGS,
      port: String(this.port),
      ...statements,
      ...settings,
    }).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const { folder, options } = requirePostgres();
    const log = openSync(this.logFile, 'a');
    const child = spawn(join(folder, 'postgres'), ['-D', this.#data, ...assigned], {
      ...options,
      cwd: this.#folder,
      stdio: ['ignore', log, log],
    });
    closeSync(log);
    this.#child = child;
    this.#janitor.watch(child.pid);
    if (!(await this.#isReady(child))) {
      throw new Error(`postgres did not start:\n${this.log().slice(-2_000)}`);
    }
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child && !hasEnded(child)) {
      const exited = once(child, 'exit');
      this.thaw();
      // An end without a look back; what it shares with its connections is given up, unlike by SIGKILL.
      child.kill('SIGQUIT');
      await exited;
    }
    this.#janitor.watch(undefined);
    await this.#janitor.clean();
  }

  /** @returns the processes of its connections */
  #signal(signal: NodeJS.Signals): number[] {
    const { pid } = this;
    const all = [...childrenOf(pid), pid];
    for (const each of all) signalTo(each, signal);
    return all.slice(0, -1);
  }

  /** The server writes its state into a file, its own process id first. */
  async #isReady(child: ChildProcess): Promise<boolean> {
    const file = join(this.#data, 'postmaster.pid');
    const end = performance.now() + START_WITHIN_MS;
    while (performance.now() < end && !hasEnded(child)) {
      const [pid, ...state] = readIfThere(file).split('\n');
      if (Number(pid) === child.pid && state[6]?.trim() === 'ready') return true;
      await sleep(5);
    }
    return false;
  }
}

interface Janitor {
  watch(pid: number | undefined): void;
  clean(): Promise<void>;
}

/**
 * A process that outlives this one: however this one ends, the server is ended then and its folder
 * removed. The last line that it was given is the server's process id.
 */
function startJanitor(folder: string): Janitor {
  const script = `
    while read -r line; do pid=$line; done
    if [ -n "$pid" ]; then
      kill -CONT "$pid"; kill -QUIT "$pid"
      for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" || break; sleep 0.2; done
      kill -KILL "$pid"
    fi
    # Written by a server, removed when it gave its shared memory back: a killed one could not.
    memory=$(awk 'NR == 7 { print $2 }' "$1/data/postmaster.pid") && ipcrm -m "$memory"
    rm -rf "$1"`;
  const child = spawn('sh', ['-c', script, 'sh', folder], {
    cwd: '/',
    // What ends a group of processes, such as Ctrl-C, must not end this one.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  const exited = once(child, 'exit');
  return {
    watch: (pid) => void child.stdin.write(`${pid ?? ''}\n`),
    async clean() {
      child.stdin.end();
      await exited;
    },
  };
}

async function createDatabase(url: string): Promise<string> {
  const name = `test_${randomBytes(8).toString('hex')}`;
  await execute(url, `CREATE DATABASE ${name}`);
  const made = new URL(url);
  made.pathname = `/${name}`;
  return String(made);
}

function nameOf(url: string): string {
  return new URL(url).pathname.slice(1);
}

async function execute(connectionString: string, sql: string): Promise<void> {
  const client = new Client({ connectionString });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

/** Where the system does not tell, a server's connections end themselves, soon after it. */
function childrenOf(pid: number): number[] {
  return readIfThere(`/proc/${pid}/task/${pid}/children`).split(' ').filter(Boolean).map(Number);
}

/** What has ended stays listed until its parent has taken note. */
function isRunning(pid: number): boolean {
  return /^\d+ \(.*\) [^ZX]/s.test(readIfThere(`/proc/${pid}/stat`));
}

function signalTo(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has just ended by itself.
  }
}

function readIfThere(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
