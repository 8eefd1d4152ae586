import { Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { Pool } from 'pg';

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS invoices (
    id text PRIMARY KEY, amount int NOT NULL, status text NOT NULL DEFAULT 'new');
  CREATE TABLE IF NOT EXISTS payments (
    invoice_id text NOT NULL REFERENCES invoices, amount int NOT NULL);
  INSERT INTO invoices (id, amount) VALUES ('inv-1', 1200), ('inv-2', 80) ON CONFLICT DO NOTHING`;

/** The Postgres at `DATABASE_URL`. Its tables are made when the application starts. */
@Injectable()
export class Database implements OnModuleInit, OnApplicationShutdown {
  readonly pool = new Pool({ connectionString: process.env['DATABASE_URL'] });

  async onModuleInit(): Promise<void> {
    await this.pool.query(SCHEMA);
  }

  async onApplicationShutdown(): Promise<void> {
    await this.pool.end();
  }
}
