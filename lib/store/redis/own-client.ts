import { type Cluster, Redis, type RedisOptions } from 'ioredis';
import { DELETE, INCR, SET } from './write.lua.js';
import { ENTER } from './enter.lua.js';
import { INSPECT } from './inspect.lua.js';
import { LEAVE } from './leave.lua.js';
import { RENEW } from './renew.lua.js';
import type { ScriptReply } from './step-codec.js';

const SCRIPTS = {
  cmdxEnter: ENTER,
  cmdxLeave: LEAVE,
  cmdxRenew: RENEW,
  cmdxInspect: INSPECT,
  cmdxSet: SET,
  cmdxIncr: INCR,
  cmdxDelete: DELETE,
} as const;

export type ScriptName = keyof typeof SCRIPTS;

type Scripts = Record<ScriptName, (...args: (string | number)[]) => Promise<ScriptReply>>;

/** A connection of our own that knows our scripts. */
export type OwnClient = (Redis | Cluster) & Scripts;

const LONGEST_RETRY_MS = 500;

function retryDelay(attempt: number): number {
  return Math.min(attempt * 50, LONGEST_RETRY_MS);
}

/**
 * Opens a connection beside the one we were handed, with settings that our promises need whatever
 * the application prefers for its own: nothing is queued and nothing is sent twice behind our back.
 *
 * @param source the client to take address, credentials, database and key prefix from, or a URL
 * @param patienceMs how long a silent server is believed to be alive
 */
export function ownClient(source: Redis | Cluster | string, patienceMs: number): OwnClient {
  const options = connectionOptions(patienceMs);
  const client = typeof source === 'string' ? new Redis(source, options) : copy(source, options);
  for (const [name, lua] of Object.entries(SCRIPTS)) client.defineCommand(name, { lua });
  return client as OwnClient;
}

function copy(source: Redis | Cluster, options: RedisOptions): Redis | Cluster {
  if (!isCluster(source)) return source.duplicate(options);
  return source.duplicate([], {
    redisOptions: options,
    lazyConnect: true,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    scaleReads: 'master',
    clusterRetryStrategy: retryDelay,
    // Anything above zero makes the cluster client re-send what a lost connection left unanswered.
    retryDelayOnFailover: 0,
  });
}

export function isCluster(client: Redis | Cluster): client is Cluster {
  return client.isCluster;
}

function connectionOptions(patienceMs: number): RedisOptions {
  return {
    lazyConnect: true,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    commandTimeout: undefined,
    stringNumbers: false,
    retryStrategy: retryDelay,
    sentinelRetryStrategy: retryDelay,
    connectTimeout: patienceMs,
    // Without it a connection whose packets are swallowed is noticed after the kernel's 15 minutes.
    socketTimeout: patienceMs,
    disconnectTimeout: 100,
    // After a failover we may still talk to the old primary: find the new one, but never re-send.
    reconnectOnError: (error) => error.message.includes('READONLY'),
  };
}
