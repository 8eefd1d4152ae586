export { ClsTransactions, type ClsTransactionHost } from './cls.transactions.js';
export { type PgClient, type PgPool, PgTransactions } from './pg.transactions.js';
export type { IsolationLevel, IsolationOptions } from './isolation.js';
export {
  type PrismaClientLike,
  PrismaTransactions,
  type PrismaTransactionOptions,
} from './prisma.transactions.js';
export type { KeyValues } from './row-key.js';
export type { KeyColumn, RowTarget, Table } from './target.js';
export { makeTable, namedTable } from './target.js';
export { type Row, Transactions } from './transactions.js';
export { type TypeOrmDataSource, TypeOrmTransactions } from './typeorm.transactions.js';
