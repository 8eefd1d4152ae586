import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { CACHE, isExecutable, libraryPath, unpackProgram } from './debian-packages.js';

export interface RedisBinary {
  readonly command: string;
  /** Added to the environment of the process. */
  readonly env: Readonly<Record<string, string>>;
}

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
  return existsSync(UNPACKED)
    ? { command: redisIn(UNPACKED), env: libraryPath(UNPACKED) }
    : undefined;
}

/** Like {@link findRedis}, but with one sentence to type when there is none. */
export function requireRedis(): RedisBinary {
  const found = findRedis();
  if (!found) throw new Error(HOW_TO);
  return found;
}

/**
 * Makes sure that there is a redis-server, if need be one that is unpacked for the tests.
 *
 * @throws Error with the command to type where that is not possible
 */
export function prepareRedis(): void {
  if (findRedis()) return;
  try {
    unpackProgram({
      name: 'redis-server',
      folder: UNPACKED,
      packages: ['redis-server', 'redis-tools'],
      binaries: (root) => [redisIn(root)],
    });
  } catch (error) {
    throw new Error(HOW_TO, { cause: error });
  }
}

function redisIn(root: string): string {
  return join(root, 'usr/bin/redis-server');
}
