import { Injectable, Logger, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { currentTransaction } from 'nestjs-cmdx';
import { Pool, type QueryResultRow } from 'pg';

const { DATABASE_URL = '' } = process.env;

/** Processes that start together make the tables one after the other: `IF NOT EXISTS` alone is no lock. */
const SCHEMA = `
  SELECT pg_advisory_xact_lock(hashtext('sample-app'));
  CREATE TABLE IF NOT EXISTS invoices (
    id text PRIMARY KEY, amount int NOT NULL, status text NOT NULL DEFAULT 'new');
  CREATE TABLE IF NOT EXISTS payments (
    invoice_id text NOT NULL REFERENCES invoices, amount int NOT NULL);
  INSERT INTO invoices (id, amount) VALUES ('inv-1', 1200), ('inv-2', 80) ON CONFLICT DO NOTHING`;

/** The Postgres at `DATABASE_URL`. Its tables are made when the application starts. */
@Injectable()
export class Database implements OnModuleInit, OnApplicationShutdown {
  readonly pool = new Pool({
    connectionString: DATABASE_URL,
    // Longer than a row is waited for: who waits for a row holds a connection.
    connectionTimeoutMillis: 10_000,
  });
  readonly #logger = new Logger(Database.name);

  constructor() {
    // A connection that is lost while nobody uses it; without a listener it would end the process.
    this.pool.on('error', ({ message }) => this.#logger.warn(`A connection was lost: ${message}`));
  }

  /** @throws Error that names the database when it cannot be used: the application does not start */
  async onModuleInit(): Promise<void> {
    try {
      await this.pool.query(SCHEMA);
    } catch (error) {
      throw new Error(
        `The database at ${hostOf(DATABASE_URL)} cannot be used (${reasonOf(error)}). Correct DATABASE_URL, or start without it.`,
        { cause: error },
      );
    }
  }

  async onApplicationShutdown(): Promise<void> {
    await this.pool.end();
  }

  /** Asks in the transaction that is open here; outside one, on any connection. */
  async query<Row extends QueryResultRow>(sql: string, values: unknown[] = []): Promise<Row[]> {
    const connection: Pick<Pool, 'query'> = currentTransaction() ?? this.pool;
    return (await connection.query<Row>(sql, values)).rows;
  }
}

/** Of a URL that is to be shown: user and password are not. */
function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : '?';
}

/** A host that has several addresses fails with one error for each, and no message of its own. */
function reasonOf(error: unknown): string {
  const [first] = error instanceof AggregateError ? error.errors : [error];
  return (first as Error).message;
}
