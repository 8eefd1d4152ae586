import { Redis } from 'ioredis';
import { type RedisServer, startRedis } from './redis-server.js';
import { until } from './time.js';

const SLOTS = 16_384;

export interface RedisCluster {
  readonly nodes: readonly RedisServer[];
  stop(): Promise<void>;
}

/** Masters only, the slots shared out evenly. Bus ports are chosen by the servers' own rule. */
export async function startRedisCluster(size = 3): Promise<RedisCluster> {
  const nodes = await Promise.all(
    Array.from({ length: size }, () =>
      startRedis(['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000']),
    ),
  );
  const clients = nodes.map(({ port }) => new Redis(port, '127.0.0.1'));
  try {
    const share = Math.ceil(SLOTS / size);
    for (const [i, client] of clients.entries()) {
      const last = Math.min(SLOTS, (i + 1) * share) - 1;
      await client.call('CLUSTER', 'ADDSLOTSRANGE', String(i * share), String(last));
      if (i > 0) await client.call('CLUSTER', 'MEET', '127.0.0.1', String(nodes[0]?.port));
    }
    for (const client of clients) {
      await until(async () => {
        const info = String(await client.call('CLUSTER', 'INFO'));
        return info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${size}`);
      }, 'the cluster to be ok');
    }
  } finally {
    for (const client of clients) client.disconnect();
  }
  return {
    nodes,
    stop: async () => {
      await Promise.all(nodes.map((node) => node.stop()));
    },
  };
}
