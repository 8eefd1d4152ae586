import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** What a client saw. */
export interface SampleAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly body: Record<string, unknown>;
}

/** The sample application as a process of its own, started like a visitor's. */
export interface SampleApp {
  readonly url: string;
  /** Everything it has printed. */
  readonly output: () => string;
  get(path: string): Promise<SampleAnswer>;
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<SampleAnswer>;
  /** Asks it to end (SIGTERM). @returns its exit code, or the signal that ended it */
  stop(): Promise<number | string | null>;
}

const MAIN = fileURLToPath(new URL('../../sample-app/main.ts', import.meta.url));
const LOADERS = ['register-typescript.mjs', 'register-sources.mjs'].flatMap((name) => [
  '--import',
  new URL(name, import.meta.url).href,
]);
const LISTENING = /Listening on (http:\S+)/;

/**
 * @param redisUrl where it keeps its state; in its own memory without one
 * @param databaseUrl where it keeps its invoices; it has none without one
 */
export async function startSampleApp(redisUrl = '', databaseUrl = ''): Promise<SampleApp> {
  const env = {
    ...process.env,
    PORT: '0',
    NO_COLOR: '1',
    REDIS_URL: redisUrl,
    DATABASE_URL: databaseUrl,
  };
  const child = spawn(process.execPath, ['--no-warnings', ...LOADERS, MAIN], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const killOnExit = (): void => void child.kill('SIGKILL');
  process.once('exit', killOnExit);
  child.once('exit', () => process.off('exit', killOnExit));
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text: Buffer) => (output += String(text)));
  }
  const url = await listening(child, () => output);
  return {
    url,
    output: () => output,
    get: (path) => ask(url + path),
    post: (path, body, headers) => post(url + path, body, headers),
    stop: () => stop(child),
  };
}

async function listening(child: ChildProcess, output: () => string): Promise<string> {
  let closed = false;
  // After its exit, when all that it has printed is read.
  const close = once(child, 'close').then(() => (closed = true));
  for (;;) {
    const url = LISTENING.exec(output())?.[1];
    if (url) return url;
    if (closed) {
      throw new Error(`the sample application ended with ${child.exitCode}:\n${output()}`);
    }
    await Promise.race([once(child.stdout as NodeJS.ReadableStream, 'data'), close]);
  }
}

function post(
  url: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<SampleAnswer> {
  return ask(url, {
    method: 'POST',
    headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

async function ask(url: string, init?: RequestInit): Promise<SampleAnswer> {
  const response = await fetch(url, init);
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    text,
    body: JSON.parse(text) as Record<string, unknown>,
  };
}

async function stop(child: ChildProcess): Promise<number | string | null> {
  if (child.exitCode === null && child.signalCode === null) {
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    await exited;
  }
  return child.exitCode ?? child.signalCode;
}
