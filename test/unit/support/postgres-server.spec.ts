import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { Client } from 'pg';
import {
  type PostgresOptions,
  type PostgresServer,
  startPostgres,
} from '../../support/postgres-server.js';
import { settledWithin, until, waitFor } from '../../support/time.js';

const servers: PostgresServer[] = [];
const clients: Client[] = [];

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
  await Promise.all(servers.splice(0).map((server) => server.stop()));
});

async function start(options?: PostgresOptions): Promise<PostgresServer> {
  const server = await startPostgres(options);
  servers.push(server);
  return server;
}

async function connect(connectionString: string): Promise<Client> {
  const client = new Client({ connectionString });
  client.on('error', () => undefined);
  await client.connect();
  clients.push(client);
  return client;
}

async function ask(client: Client, sql: string, values?: unknown[]): Promise<unknown[]> {
  return (await client.query({ text: sql, values, rowMode: 'array' })).rows.flat();
}

/** Whether somebody still runs with this process id. */
function runs(pid: number): boolean {
  try {
    return !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ');
  } catch {
    return false;
  }
}

/** How many segments of shared memory these processes have made. */
function sharedBy(pids: readonly number[]): number {
  const [names = '', ...segments] = readFileSync('/proc/sysvipc/shm', 'utf8').trim().split('\n');
  const creator = names.trim().split(/\s+/).indexOf('cpid');
  return segments.filter((line) => pids.includes(Number(line.trim().split(/\s+/)[creator]))).length;
}

describe('a private Postgres server', () => {
  it('answers when it has started, and is gone when it was stopped', async () => {
    const server = await start();
    const client = await connect(server.url);
    expect(await ask(client, 'SELECT 1 + 1')).toEqual([2]);
    expect(await ask(client, 'SHOW TimeZone')).toEqual(['GMT']);

    await server.stop();

    await expect(connect(server.url)).rejects.toThrow('ECONNREFUSED');
    expect(existsSync(dirname(server.logFile))).toBe(false);
  });

  it('makes databases that know nothing of each other', async () => {
    const server = await start();
    const [one, other] = await Promise.all(
      (await Promise.all([server.createDatabase(), server.createDatabase()])).map(connect),
    );

    await one?.query('CREATE TABLE invoices (id int)');

    await expect(other?.query('SELECT * FROM invoices')).rejects.toThrow('does not exist');
  });

  it('runs beside another one', async () => {
    const [one, other] = await Promise.all([start(), start()]);
    const client = await connect(one.url);
    await client.query('CREATE TABLE invoices (id int)');

    await other.kill();

    expect(await ask(client, 'SELECT count(*)::int FROM invoices')).toEqual([0]);
  });

  it('keeps what was committed, and nothing else, when it is killed and started again', async () => {
    const server = await start();
    const client = await connect(server.url);
    await client.query('CREATE TABLE invoices (id int); INSERT INTO invoices VALUES (1)');
    await client.query('BEGIN; INSERT INTO invoices VALUES (2)');
    const waiting = settledWithin(1_000, ask(client, 'SELECT pg_sleep(60)'));

    await Promise.all([expect(waiting).rejects.toThrow(/terminated|ECONNRESET/), server.kill()]);
    await expect(connect(server.url)).rejects.toThrow('ECONNREFUSED');
    await server.restart();

    const again = await connect(server.url);
    expect(await ask(again, 'SELECT id FROM invoices')).toEqual([1]);
  });

  it('can be killed as often as one likes', async () => {
    const server = await start();
    for (const id of [1, 2, 3]) {
      const client = await connect(server.url);
      await client.query('CREATE TABLE IF NOT EXISTS invoices (id int)');
      await client.query('INSERT INTO invoices VALUES ($1)', [id]);
      await server.restart();
    }

    const client = await connect(server.url);
    expect(await ask(client, 'SELECT id FROM invoices ORDER BY id')).toEqual([1, 2, 3]);
  });

  it('answers nobody while it is frozen, and everybody afterwards', async () => {
    const server = await start();
    const client = await connect(server.url);
    server.freeze();
    const answers: unknown[] = [];
    const asked = ask(client, 'SELECT 7').then((answer) => answers.push(...answer));
    const connected = connect(server.url).then(() => answers.push('connected'));

    await waitFor(100);
    expect(answers).toEqual([]);

    server.thaw();
    await Promise.all([asked, connected]);
    expect(answers).toEqual(expect.arrayContaining([7, 'connected']));
  });

  it('stops also when it is frozen', async () => {
    const server = await start();
    server.freeze();
    await settledWithin(2_000, server.stop());
    expect(runs(server.pid)).toBe(false);
  });

  it('tells which statements came in, when and on which connection', async () => {
    const server = await start({ logStatements: true });
    const client = await connect(await server.createDatabase());
    const [pid] = await ask(client, 'SELECT pg_backend_pid()');
    const before = Date.now();
    await client.query('BEGIN');
    await client.query('SELECT $1::int\n+ 1', [1]);
    await client.query('COMMIT');

    const mine = server.statements().filter((statement) => statement.pid === pid);

    expect(mine.slice(1).map(({ sql }) => sql)).toEqual(['BEGIN', 'SELECT $1::int\n+ 1', 'COMMIT']);
    for (const { at } of mine.slice(1)) {
      expect(at).toBeGreaterThanOrEqual(before);
      expect(at).toBeLessThanOrEqual(Date.now());
    }
  });

  it('takes settings', async () => {
    const server = await start({ settings: { deadlock_timeout: '123ms' } });
    const client = await connect(server.url);
    expect(await ask(client, 'SHOW deadlock_timeout')).toEqual(['123ms']);
  });

  describe('that another process has started', () => {
    let child: ChildProcess;
    let started: { readonly pid: number; readonly logFile: string };

    // How long a process of TypeScript takes to begin is not the question.
    beforeAll(async () => {
      const support = join(dirname(fileURLToPath(import.meta.url)), '../../support');
      const program = `
        const { startPostgres } = await import('./postgres-server.ts');
        const { pid, logFile } = await startPostgres();
        process.send({ pid, logFile });
        setInterval(() => undefined, 1_000);`;
      child = spawn(
        process.execPath,
        ['--no-warnings', '--import', './register-typescript.mjs', '--input-type=module', '-'],
        { cwd: support, stdio: ['pipe', 'inherit', 'inherit', 'ipc'] },
      );
      child.stdin?.end(program);
      [started] = (await once(child, 'message')) as [typeof started];
    }, 60_000);

    afterAll(() => void child.kill('SIGKILL'));

    it('ends, and leaves no folder, when that process is killed', async () => {
      const { pid, logFile } = started;
      expect(runs(pid)).toBe(true);

      child.kill('SIGKILL');

      await until(() => !runs(pid) && !existsSync(dirname(logFile)), 'the end of the server');
    });
  });

  it.each(['stopped', 'killed', 'killed and started again'])(
    'leaves no shared memory behind when it was %s',
    async (how) => {
      const server = await start();
      const pids = [server.pid];
      expect(sharedBy(pids)).toBe(1);

      if (how !== 'stopped') await server.kill();
      if (how === 'killed and started again') await server.restart();
      pids.push(server.pid);
      await server.stop();

      expect(sharedBy(pids)).toBe(0);
    },
  );
});
