import { Command, type Redis } from 'ioredis';
import { StoreError } from '../../errors/store.error.js';
import { outside } from '../../process-wide.js';
import { isCluster, type OwnClient, type ScriptName } from './own-client.js';
import type { ScriptReply } from './step-codec.js';
import { StoreClock } from './store-clock.js';

const REOPEN_AFTER_MS = 500;

/** The script ran after its deadline and wrote nothing. */
export class LateError extends Error {
  constructor(
    /** Whether our idea of the store's clock was wrong, so that another try makes sense. */
    readonly stepped: boolean,
  ) {
    super('late');
  }
}

/**
 * Our connection: opens on first use, says when it can be used, and knows the store's clock. A
 * standalone connection is ready once its first `TIME` is answered, because until then no deadline
 * can be expressed in store time.
 */
export class Link {
  #client: OwnClient | undefined;
  #ready = false;
  #closed = false;
  readonly #waiters = new Set<Waiter>();
  #session = 0;
  #reopening: NodeJS.Timeout | undefined;
  /** By node address; a standalone server has the address ''. */
  readonly #clocks = new Map<string, Promise<StoreClock> | StoreClock>();

  /** Why the last attempt to connect failed. */
  lastError: unknown;

  /**
   * @param connect makes the client, not connected yet
   * @param onReady told each time the server answers again
   */
  constructor(
    private readonly connect: () => OwnClient,
    private readonly onReady: () => void,
  ) {}

  /** The connection, if it can be used now: that its socket has ended is told a little later. */
  get ready(): OwnClient | undefined {
    const client = this.#client;
    if (!client || !this.#ready) return undefined;
    return isCluster(client) || client.stream.writable ? client : undefined;
  }

  /** Starts to connect, once. Never waits and never throws. */
  open(): OwnClient {
    this.#client ??= outside(() => this.#open());
    return this.#client;
  }

  /**
   * @param patience whose end is the end of the wait: the promise is then dropped, unsettled, so that
   *   a long outage leaves nothing behind of the calls that it has refused
   * @returns the connection as soon as it is ready
   * @throws StoreError (`closed`)
   */
  async use(patience?: Patience): Promise<OwnClient> {
    if (this.#closed) throw closedError();
    const client = this.open();
    if (!this.ready) {
      await new Promise<void>((resolve, reject) => {
        const waiter = { resolve, reject };
        this.#waiters.add(waiter);
        patience?.onEnd(() => this.#waiters.delete(waiter));
      });
    }
    return client;
  }

  /** After a connection of a cluster broke: its nodes may have changed places, and clocks. */
  refreshSlots(): void {
    this.#clocks.clear();
    const client = this.#client;
    if (client && isCluster(client)) outside(() => client.refreshSlotsCache());
  }

  /** The clock of the node that owns `key`; once it is known, that node is connected. */
  clockOf(client: OwnClient, key: string): StoreClock | Promise<StoreClock> {
    const address = addressOf(client, key);
    return this.#clocks.get(address) ?? this.#learnClock(client, address);
  }

  /**
   * Runs a script that begins its answer with the store's time.
   *
   * @throws LateError when the script found its deadline passed
   */
  async run(
    client: OwnClient,
    clock: StoreClock,
    script: ScriptName,
    keys: readonly string[],
    args: readonly string[],
  ): Promise<ScriptReply> {
    const sentAt = performance.now();
    const reply = await outside(() => client[script](keys.length, ...keys, ...args));
    const stepped = clock.observe(Number(reply[0]) / 1_000, sentAt, performance.now());
    if (reply.length === 1) throw new LateError(stepped);
    return reply;
  }

  /** Ends the connection; whoever waits for it is told that the store is closed. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#ready = false;
    clearTimeout(this.#reopening);
    for (const waiter of this.#waiters) waiter.reject(closedError());
    this.#waiters.clear();
    const client = this.#client;
    if (!client || client.status === 'end') return;
    const ended = new Promise<void>((resolve) => {
      client.once('end', resolve);
      // A client that sleeps between two attempts to connect reports no end.
      if (client.status === 'reconnecting') resolve();
    });
    client.disconnect();
    await ended;
  }

  #open(): OwnClient {
    const client = this.connect();
    client.on('ready', () => this.#onReady(client));
    client.on('close', () => this.#onLost());
    client.on('end', () => this.#onEnd(client));
    client.on('error', (error: unknown) => (this.lastError = error));
    client.on('node error', (error: unknown) => (this.lastError = error));
    client.connect().catch((error: unknown) => (this.lastError ??= error));
    return client;
  }

  async #onReady(client: OwnClient): Promise<void> {
    this.#session += 1;
    const session = this.#session;
    this.#clocks.clear();
    if (!isCluster(client)) {
      try {
        await this.#learnClock(client, '');
      } catch (error) {
        this.lastError = error;
        if (session === this.#session && !this.#closed) client.disconnect(true);
        return;
      }
    }
    if (session !== this.#session || this.#closed) return;
    this.#ready = true;
    for (const waiter of this.#waiters) waiter.resolve();
    this.#waiters.clear();
    this.onReady();
  }

  #onLost(): void {
    this.#session += 1;
    this.#ready = false;
  }

  /** A client that has given up (its connector failed for good) is asked to try again. */
  #onEnd(client: OwnClient): void {
    this.#onLost();
    if (this.#closed) return;
    this.#reopening = setTimeout(() => {
      client.connect().catch((error: unknown) => (this.lastError = error));
    }, REOPEN_AFTER_MS).unref();
  }

  #learnClock(client: OwnClient, address: string): Promise<StoreClock> {
    const learned = outside(() => this.#askTime(client, address));
    this.#clocks.set(address, learned);
    learned.then(
      (clock) => this.#clocks.get(address) === learned && this.#clocks.set(address, clock),
      () => this.#clocks.get(address) === learned && this.#clocks.delete(address),
    );
    return learned;
  }

  async #askTime(client: OwnClient, address: string): Promise<StoreClock> {
    const clock = new StoreClock();
    const sentAt = performance.now();
    const [seconds, microseconds] = await nodeAt(client, address).time();
    const storeTime = Number(seconds) * 1_000 + Number(microseconds) / 1_000;
    clock.observe(storeTime, sentAt, performance.now());
    return clock;
  }
}

function addressOf(client: OwnClient, key: string): string {
  if (!isCluster(client)) return '';
  const { keyPrefix = '' } = client.options;
  const slot = new Command('get', [keyPrefix + key]).getSlot();
  return (slot !== null && client.slots[slot]?.[0]) || '';
}

/** Nodes of one cluster have clocks of their own. */
function nodeAt(client: OwnClient, address: string): Pick<Redis, 'time'> {
  if (!isCluster(client)) return client;
  const node = client
    .nodes('master')
    .find(({ options }) => `${options.host}:${options.port}` === address);
  if (!node) throw new Error(`the cluster has no node for this key (${address || 'no owner'})`);
  return node;
}

function closedError(): StoreError {
  return new StoreError('closed', 'The Redis store is closed.');
}

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** How long somebody waits. */
export interface Patience {
  /** @param listener told when it has ended */
  onEnd(listener: () => void): void;
}
