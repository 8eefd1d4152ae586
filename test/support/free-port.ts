import { once } from 'node:events';
import { createServer } from 'node:net';

const PORTS_PER_WORKER = 500;

/**
 * A port of the loopback interface that nobody listens on at this moment. Not one that the system
 * gives away: a server that is killed and started again needs its port back, and meanwhile nobody
 * must have been given it. Each of Jest's workers has its own to choose from.
 */
export async function freePort(): Promise<number> {
  const first = 20_000 + (Number(process.env['JEST_WORKER_ID'] ?? 0) % 20) * PORTS_PER_WORKER;
  for (;;) {
    const port = first + Math.floor(Math.random() * PORTS_PER_WORKER);
    if (await isFree(port)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const listening = once(server, 'listening').then(
    () => true,
    () => false,
  );
  server.listen(port, '127.0.0.1');
  if (!(await listening)) return false;
  server.close();
  await once(server, 'close');
  return true;
}
