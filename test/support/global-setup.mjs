import './register-typescript.mjs';

/** Jest runs this once, before its workers start: only one process may unpack a server or generate a client. */
export default async function prepare() {
  const { prepareRedis } = await import('./redis-binary.ts');
  prepareRedis();
  const { preparePostgres } = await import('./postgres-binary.ts');
  await preparePostgres();
  const { preparePrisma } = await import('./prisma-client.ts');
  await preparePrisma();
}
