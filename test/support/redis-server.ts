import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './free-port.js';
import { requireRedis } from './redis-binary.js';

/** A private Redis server on a free loopback port, without persistence. */
export interface RedisServer {
  readonly port: number;
  readonly url: string;
  readonly pid: number;
  /** Stops its clock and its answers; sockets stay open (SIGSTOP). */
  freeze(): void;
  thaw(): void;
  /** Ends it at once (SIGKILL); its data is gone. */
  kill(): Promise<void>;
  /** Starts it again on the same port, empty. */
  restart(): Promise<void>;
  /** Ends it and removes its folder. */
  stop(): Promise<void>;
}

const ATTEMPTS = 5;
const START_WITHIN_MS = 10_000;

/** @param args more command line arguments, for example `['--cluster-enabled', 'yes']` */
export async function startRedis(args: readonly string[] = []): Promise<RedisServer> {
  for (let attempt = 1; ; attempt += 1) {
    const server = new PrivateRedis(await freePort(), args);
    try {
      await server.restart();
      return server;
    } catch (error) {
      await server.stop();
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

/** A server for tests that need nothing but one: the one at `REDIS_URL`, or a private one. */
export async function borrowRedis(): Promise<{
  readonly url: string;
  readonly stop: () => Promise<void>;
}> {
  const { REDIS_URL } = process.env;
  return REDIS_URL ? { url: REDIS_URL, stop: async () => {} } : startRedis();
}

class PrivateRedis implements RedisServer {
  readonly url: string;
  readonly #folder = mkdtempSync(join(tmpdir(), 'redis-test-'));
  #child: ChildProcess | undefined;

  constructor(
    readonly port: number,
    private readonly args: readonly string[],
  ) {
    this.url = `redis://127.0.0.1:${port}`;
    process.once('exit', this.#onExit);
  }

  get pid(): number {
    return this.#child?.pid ?? -1;
  }

  freeze(): void {
    this.#child?.kill('SIGSTOP');
  }

  thaw(): void {
    this.#child?.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }

  async restart(): Promise<void> {
    await this.kill();
    const { command, env } = requireRedis();
    const options = ['--port', String(this.port), '--bind', '127.0.0.1', '--dir', this.#folder];
    const storage = ['--save', '', '--appendonly', 'no', '--daemonize', 'no'];
    const child = spawn(command, [...options, ...storage, ...this.args], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (text: Buffer) => (output = (output + text).slice(-2_000)));
    }
    // Its own word for it: on its port somebody else may answer.
    const ready = (): boolean => output.includes('Ready to accept connections');
    const started = await this.#answers(child, ready);
    if (!started) throw new Error(`redis-server did not start:\n${output}`);
  }

  async stop(): Promise<void> {
    await this.kill();
    process.off('exit', this.#onExit);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  readonly #onExit = (): void => void this.#child?.kill('SIGKILL');

  async #answers(child: ChildProcess, ready: () => boolean): Promise<boolean> {
    const end = performance.now() + START_WITHIN_MS;
    while (performance.now() < end && child.exitCode === null && child.signalCode === null) {
      if (ready() && (await answersPing(this.port))) return true;
      await sleep(10);
    }
    return false;
  }
}

function answersPing(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection(port, '127.0.0.1', () => socket.write('PING\r\n'));
    const finish = (answered: boolean): void => {
      socket.destroy();
      resolve(answered);
    };
    socket.once('data', (data) => finish(data.toString().startsWith('+PONG')));
    socket.once('error', () => finish(false));
    socket.once('close', () => finish(false));
  });
}
