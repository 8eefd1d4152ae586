import { type ChildProcess, fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpus } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));

/** A process that is asked one thing at a time. */
export interface Child {
  /** Its first message. */
  readonly greeting: unknown;
  ask<T>(message: unknown): Promise<T>;
  stop(): Promise<void>;
}

/** Whether processes can be kept to a core of their own. */
export const canPin = cpus().length > 1 && spawnSync('taskset', ['-V']).status === 0;

/** @param core the only core it may run on once it has started, where the system can do that */
export async function startChild(
  file: string,
  core: number,
  args: readonly string[] = [],
): Promise<Child> {
  const child = fork(join(HERE, file), args);
  const killOnExit = (): void => void child.kill('SIGKILL');
  process.once('exit', killOnExit);
  child.once('exit', () => process.off('exit', killOnExit));
  const greeting = await nextMessage(child, file);
  // Only now: to start takes longer than the measurements, and may use every core.
  if (canPin) spawnSync('taskset', ['-a', '-c', '-p', String(core), String(child.pid)]);
  return {
    greeting,
    ask: <T>(message: unknown) => {
      const answer = nextMessage(child, file) as Promise<T>;
      child.send(message as object);
      return answer;
    },
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, 'exit');
      child.disconnect();
      await exited;
    },
  };
}

async function nextMessage(child: ChildProcess, file: string): Promise<unknown> {
  const ended = new AbortController();
  const { signal } = ended;
  const dead = once(child, 'exit', { signal }).then(() => {
    throw new Error(`${file} ended with ${child.exitCode ?? child.signalCode}`);
  });
  dead.catch(() => undefined);
  try {
    const [message] = (await Promise.race([once(child, 'message', { signal }), dead])) as unknown[];
    return message;
  } finally {
    ended.abort();
  }
}
