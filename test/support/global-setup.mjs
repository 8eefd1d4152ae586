import './register-typescript.mjs';

/** Jest runs this once, before its workers start: only one process may unpack a server. */
export default async function prepare() {
  const { prepareRedis } = await import('./redis-binary.ts');
  prepareRedis();
  const { preparePostgres } = await import('./postgres-binary.ts');
  await preparePostgres();
}
