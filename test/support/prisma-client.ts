import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import type { PoolConfig } from 'pg';
import { CACHE } from './debian-packages.js';
import type { PostgresDatabases } from './postgres-server.js';

/** The rows of the test schema as Prisma maps them. */
export interface PrismaRows {
  invoice: { id: number; amountCents: number; status: string; paidAt: Date | null };
  payment: { id: string; invoiceId: number; amountCents: number };
  account: { id: bigint; balanceCents: bigint };
  seat: { flight: string; number: number; holder: string | null };
}

/** What tests use of a model; the generated types say the same and more. */
export interface PrismaModel<Row> {
  create(query: { data: Partial<Row> }): Promise<Row>;
  createMany(query: { data: Partial<Row>[] }): Promise<{ count: number }>;
  findFirstOrThrow(query?: { where?: Partial<Row> }): Promise<Row>;
  findMany(query?: { where?: Partial<Row>; orderBy?: object }): Promise<Row[]>;
  updateMany(query: { where?: Partial<Row>; data: object }): Promise<{ count: number }>;
  deleteMany(query?: { where?: Partial<Row> }): Promise<{ count: number }>;
  count(query?: { where?: Partial<Row> }): Promise<number>;
}

/** What tests use of a transaction. */
export type PrismaTransactionClient = {
  readonly [Model in keyof PrismaRows]: PrismaModel<PrismaRows[Model]>;
} & {
  $queryRawUnsafe<T = unknown>(sql: string, ...values: unknown[]): Promise<T>;
  $executeRawUnsafe(sql: string, ...values: unknown[]): Promise<number>;
};

/** What tests use of the client that is generated from the test schema. */
export interface PrismaClient extends PrismaTransactionClient {
  $transaction<T>(
    body: (tx: PrismaTransactionClient) => Promise<T>,
    options?: { timeout?: number; maxWait?: number },
  ): Promise<T>;
  $connect(): Promise<void>;
  $disconnect(): Promise<void>;
}

const run = promisify(execFile);
const require = createRequire(import.meta.url);

const FOLDER = resolve(dirname(fileURLToPath(import.meta.url)), '../integration/row-lock/prisma');
const SCHEMA = join(FOLDER, 'schema.prisma');
/** The tables of the test schema, for an empty database. */
export const PRISMA_TABLES = readFileSync(join(FOLDER, 'tables.sql'), 'utf8');

/**
 * Generates the client of the test schema into the project's cache, once per schema and version.
 *
 * @returns the file to import
 */
export async function preparePrisma(): Promise<string> {
  const { version } = require('prisma/package.json') as { version: string };
  const hash = createHash('sha256').update(version).update(readFileSync(SCHEMA));
  const folder = join(CACHE, 'prisma', hash.digest('hex').slice(0, 16));
  const client = join(folder, 'client/client.ts');
  if (existsSync(client)) return client;
  const work = `${folder}.${process.pid}`;
  mkdirSync(work, { recursive: true });
  try {
    copyFileSync(SCHEMA, join(work, 'schema.prisma'));
    await run(process.execPath, [prismaCommand(), 'generate', '--schema=schema.prisma'], {
      cwd: work,
      env: {
        ...process.env,
        // It would fetch its engine for migrations, and not begin without. Any file in its place
        // will do: what generates is part of the package.
        PRISMA_SCHEMA_ENGINE_BINARY: process.execPath,
        // It would ask for a newer version.
        CHECKPOINT_DISABLE: '1',
      },
    });
    // Another process may have been faster; its result is as good.
    if (!existsSync(folder)) renameSync(work, folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return client;
}

/**
 * A client of the database at that URL, with a pool of its own of at most so many connections.
 *
 * @param settings more settings of that pool
 */
export async function openPrisma(
  connectionString: string,
  max = 10,
  settings: PoolConfig = {},
): Promise<PrismaClient> {
  const { href } = pathToFileURL(await preparePrisma());
  const { PrismaPg } = await import('@prisma/adapter-pg');
  const { PrismaClient: Client } = (await import(href)) as {
    readonly PrismaClient: new (options: { readonly adapter: unknown }) => PrismaClient;
  };
  return new Client({ adapter: new PrismaPg({ connectionString, max, ...settings }) });
}

/** A client of a new database with the tables of the test schema. */
export async function openPrismaDatabase(
  databases: PostgresDatabases,
  max?: number,
): Promise<{ readonly url: string; readonly client: PrismaClient }> {
  const url = await databases.createDatabase();
  const client = await openPrisma(url, max);
  for (const statement of PRISMA_TABLES.split(';').filter((text) => text.trim() !== '')) {
    await client.$executeRawUnsafe(statement);
  }
  return { url, client };
}

function prismaCommand(): string {
  const manifest = require.resolve('prisma/package.json');
  const { bin } = require(manifest) as { bin: { prisma: string } };
  return join(dirname(manifest), bin.prisma);
}
