import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Cluster, Command, type NatMap } from 'ioredis';
import { Deadline } from '../../lib/clock/deadline.js';
import { isStoreError } from '../../lib/errors/store.error.js';
import { RedisStore } from '../../lib/store/redis/index.js';
import type { EnterStep } from '../../lib/store/store.js';
import { storeConformance, type StoreHarness } from '../../lib/testing/store-conformance.js';
import { type RedisCluster, startRedisCluster } from '../support/redis-cluster.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { settledWithin, until, waitFor } from '../support/time.js';

let servers: RedisCluster;
beforeAll(async () => {
  servers = await startRedisCluster(3);
}, 30_000);
afterAll(() => servers.stop());

function connect(natMap?: NatMap): Cluster {
  return new Cluster(
    servers.nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    { redisOptions: { keyPrefix: 'app:' }, natMap },
  );
}

describe('does RedisStore keep the store contract on a cluster?', () => {
  storeConformance(it, async (): Promise<StoreHarness> => {
    const client = connect();
    const store = new RedisStore({ client });
    return {
      store,
      advance: waitFor,
      slackMs: 100,
      plant: async (key, value, ttlMs) => {
        await (ttlMs ? client.set(key, value, 'PX', ttlMs) : client.set(key, value));
      },
      dispose: async () => {
        await store.close();
        expect(await client.set('still', 'open')).toBe('OK');
        client.disconnect();
      },
    };
  });
});

function ownerOf(client: Cluster, key: string): string {
  const slot = new Command('get', [`app:${key}`]).getSlot();
  return client.slots[slot]?.[0] ?? '';
}

function keysOfDifferentNodes(client: Cluster): [string, string, string] {
  const byOwner = new Map<string, string>();
  while (byOwner.size < 3) {
    const key = `key:${randomUUID()}`;
    byOwner.set(ownerOf(client, key), key);
  }
  const [first = '', second = '', third = ''] = byOwner.values();
  return [first, second, third];
}

describe('when a cluster loses a reply', () => {
  it('is a start charged once, although cluster clients like to send again?', async () => {
    const target = servers.nodes[1]?.port ?? 0;
    const proxy = await TcpProxy.start(target);
    const client = connect({ [`127.0.0.1:${target}`]: { host: '127.0.0.1', port: proxy.port } });
    await until(() => client.status === 'ready', 'the cluster client');
    const key = keysOfDifferentNodes(client).find((candidate) =>
      ownerOf(client, candidate).endsWith(`:${proxy.port}`),
    );
    const store = new RedisStore({ client });
    const hit: EnterStep = { kind: 'fixed_window', key: key ?? '', max: 5, windowMs: 60_000 };
    try {
      await store.enter([hit], Deadline.after(5_000));
      proxy.loseReplyOf(1, { only: 'evalsha' });
      expect(await store.enter([hit], Deadline.after(5_000))).toMatchObject([
        { admitted: true, count: 2 },
      ]);
      expect(await store.get(hit.key)).toBe('2');
      expect(await store.enter([hit], Deadline.after(5_000))).toMatchObject([{ count: 3 }]);
    } finally {
      await store.close();
      client.disconnect();
      await proxy.stop();
    }
  });

  it('is a lease given back that its call did not know it had taken?', async () => {
    const client = connect();
    const first = `first:${randomUUID()}`;
    const proxies = new Map<number, TcpProxy>();
    const natMap: NatMap = {};
    for (const { port } of servers.nodes) {
      const proxy = await TcpProxy.start(port);
      proxies.set(port, proxy);
      natMap[`127.0.0.1:${port}`] = { host: '127.0.0.1', port: proxy.port };
    }
    const viaProxies = connect(natMap);
    const store = new RedisStore({ client: viaProxies });
    const lease = (key: string): EnterStep => {
      return { kind: 'lease', key, token: 'token', ttlMs: 60_000 };
    };
    try {
      await until(() => client.status === 'ready' && viaProxies.status === 'ready', 'the clients');
      const busy = keysOfDifferentNodes(client).find(
        (key) => ownerOf(client, key) !== ownerOf(client, first),
      );
      await client.set(busy ?? '', 'somebody', 'PX', 60_000);
      await store.get(first);
      const owner = Number(ownerOf(client, first).split(':')[1]);
      proxies.get(owner)?.loseReplyOf(1, { only: first });
      expect(
        await store.enter([lease(first), lease(busy ?? '')], Deadline.after(5_000)),
      ).toMatchObject([{ admitted: true }, { admitted: false, holder: 'somebody' }]);
      await until(async () => (await client.get(first)) === null, 'the release');
      await client.del(busy ?? '');
    } finally {
      await store.close();
      client.disconnect();
      viaProxies.disconnect();
      for (const proxy of proxies.values()) await proxy.stop();
    }
  });
});

describe('when a cluster loses a node', () => {
  it('do calls settle in time, and does the rest give back what it had granted?', async () => {
    const client = connect();
    client.on('error', () => undefined);
    const store = new RedisStore({ client });
    store.useTimeout(500);
    await until(() => client.status === 'ready', 'the cluster client');
    const [first, second, third] = keysOfDifferentNodes(client);
    const lease = (key: string): EnterStep => ({
      kind: 'lease',
      key,
      token: 'token',
      ttlMs: 60_000,
    });
    try {
      await store.enter([lease(first), lease(second), lease(third)], Deadline.after(5_000));
      await store.leave(
        [first, second, third].map((key) => ({
          kind: 'release',
          key,
          token: 'token',
          ttlMs: 60_000,
        })),
      );
      const owner = ownerOf(client, third);
      servers.nodes.find(({ port }) => owner.endsWith(`:${port}`))?.freeze();
      // What is owed to the lost node, before and after, does not stand in the way of the other.
      const deadline = Deadline.after(500);
      const failed = [
        store.enter([lease(third)], deadline),
        store.enter([lease(first), lease(third)], deadline),
      ];
      for (const settled of await settledWithin(700, Promise.allSettled(failed))) {
        expect(settled).toMatchObject({ status: 'rejected' });
        expect(isStoreError((settled as PromiseRejectedResult).reason)).toBe(true);
      }
      await until(async () => (await client.get(first)) === null, 'the release', 2_000);
    } finally {
      for (const node of servers.nodes) node.thaw();
      await store.close();
      client.disconnect();
    }
  });
});
