import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const SUPPORT = dirname(fileURLToPath(import.meta.url));
/** TypeScript, and the library's sources in place of what was last built. */
const REGISTER = ['register-typescript.mjs', 'register-sources.mjs'].flatMap((file) => [
  '--import',
  join(SUPPORT, file),
]);

/** A second process that runs a TypeScript file and talks by messages. */
export interface Worker {
  readonly pid: number;
  send(message: unknown): void;
  /** The next message it sends. @throws Error when it ends first */
  next<T>(): Promise<T>;
  /** Stops and continues it: a process in a long pause (SIGSTOP, SIGCONT). */
  freeze(): void;
  thaw(): void;
  /** Asks it to end by itself (SIGTERM) and waits. */
  stop(): Promise<void>;
  /** Ends it at once (SIGKILL). */
  kill(): Promise<void>;
}

/**
 * Starts a worker. The file may import the library's sources; in it, `process.on('message')` and
 * `process.send` are the way to the test.
 */
export function startWorker(file: string, args: readonly string[] = []): Worker {
  const child = fork(file, args, { execArgv: ['--no-warnings', ...REGISTER] });
  const messages: unknown[] = [];
  child.on('message', (message) => messages.push(message));
  const killOnExit = (): void => void child.kill('SIGKILL');
  process.once('exit', killOnExit);
  child.once('exit', () => process.off('exit', killOnExit));

  return {
    pid: child.pid ?? -1,
    send: (message) => void child.send(message as object),
    freeze: () => void child.kill('SIGSTOP'),
    thaw: () => void child.kill('SIGCONT'),
    stop: () => end(child, 'SIGTERM'),
    kill: () => end(child, 'SIGKILL'),
    next: async <T>() => {
      while (messages.length === 0) {
        if (hasEnded(child)) throw new Error(`worker ${file} ended with ${child.exitCode}`);
        await Promise.race([once(child, 'message'), once(child, 'exit')]);
      }
      return messages.shift() as T;
    },
  };
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (hasEnded(child)) return;
  const exited = once(child, 'exit');
  child.kill(signal);
  await exited;
}
