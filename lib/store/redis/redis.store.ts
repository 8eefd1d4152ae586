import type { Cluster, Redis } from 'ioredis';
import { Deadline } from '../../clock/deadline.js';
import { type Duration, toMilliseconds } from '../../clock/duration.js';
import { DefinitionError, show } from '../../errors/definition.error.js';
import { StoreError } from '../../errors/store.error.js';
import { outside } from '../../process-wide.js';
import { incrementOf } from '../increment.js';
import { PendingCalls } from '../pending-calls.js';
import {
  type EnterReply,
  type EnterStep,
  type Hold,
  type KeyReport,
  type LeaveReply,
  type LeaveStep,
  Store,
} from '../store.js';
import { stillToLeave, undosOf } from '../undo.js';
import { atMost } from './at-most.js';
import { Call, lostItsReply, toStoreError } from './call.js';
import { LateError, Link } from './link.js';
import { isCluster, type OwnClient, ownClient, type ScriptName } from './own-client.js';
import { enterCall, inspectCall, leaveCall, renewCall, type ScriptCall } from './script-call.js';
import { StoreClock } from './store-clock.js';
import {
  checkLeft,
  decodeLeave,
  decodeReplies,
  type ReturnStep,
  type ScriptReply,
  undosOfNew,
} from './step-codec.js';
import { UnreturnedHolds } from './unreturned-holds.js';

/** Where Redis is: a client whose settings are copied, or an address. */
export type RedisStoreOptions =
  | {
      /** An ioredis `Redis` or `Cluster`. It is never used, reconfigured or closed by the store. */
      readonly client: Redis | Cluster;
    }
  | {
      /** For example `redis://user:password@host:6379/0`; `rediss://` for TLS. */
      readonly url: string;
    };

/** A silent connection is given up after so many times the patience of a call, at least 3 s. */
const SILENCE_FACTOR = 3;
const SHORTEST_SILENCE_MS = 3_000;
/** How long a cluster client gets to find out who serves a slot now. */
const REFRESH_SLOTS_MS = 100;
const LONGEST_GOODBYE_MS = 500;

/**
 * Keeps the state in Redis 5 or later, so that every process of an application sees the same
 * leases, limits and outcomes. One `enter` and one `leave` are one script each, sent by hash; on a Redis
 * Cluster, where keys of different steps live on different nodes, they are one script per step.
 *
 * The store opens a connection of its own, on `open()` or the first call, with the address,
 * credentials, database and key prefix of the client it was given. It never queues a command: a
 * call waits for the connection within its own deadline, then rejects with a `StoreError`.
 */
export class RedisStore extends Store {
  readonly #link: Link;
  /** Keys of different steps live on different nodes: one command per step, in order. */
  readonly #oneByOne: boolean;
  readonly #pending = new PendingCalls();
  readonly #unreturned = new UnreturnedHolds((steps) => this.#giveBack(steps));
  #closed = false;
  /** Calls that have not settled yet, and who waits for the last of them. */
  #running = 0;
  #onIdle: (() => void) | undefined;

  /** @throws DefinitionError unless exactly one of `client` and `url` is given */
  constructor(options: RedisStoreOptions) {
    super();
    const source = sourceOf(options);
    this.#oneByOne = typeof source !== 'string' && isCluster(source);
    this.#link = new Link(
      () => ownClient(source, Math.max(SHORTEST_SILENCE_MS, SILENCE_FACTOR * this.timeoutMs)),
      () => void this.#unreturned.drain(),
    );
  }

  override open(): void {
    if (!this.#closed) this.#link.open();
  }

  enter(steps: readonly EnterStep[], deadline: Deadline): Promise<EnterReply[]> {
    const undos = undosOf(steps);
    for (const undo of undos) this.#unreturned.forget(undo);
    return this.#settle(deadline, (call) => this.#enter(steps, call), undos);
  }

  leave(steps: readonly LeaveStep[]): Promise<LeaveReply[]> {
    const deadline = Deadline.after(this.timeoutMs);
    return this.#settle(deadline, (call) => this.#leave(steps, call)).catch((error: unknown) => {
      this.#unreturned.add(stillToLeave(steps));
      throw error;
    });
  }

  async renew(holds: readonly Hold[]): Promise<readonly boolean[]> {
    const deadline = Deadline.after(this.timeoutMs);
    const replies = await Promise.all(
      this.#batches(holds).map((batch) =>
        this.#settle(deadline, (call) => this.#exchange(call, renewCall(batch))),
      ),
    );
    return replies.flatMap(([, ...flags]) => flags.map((flag) => flag === 1));
  }

  get(key: string): Promise<string | undefined> {
    return this.#read(key, async (client) => (await client.get(key)) ?? undefined);
  }

  async set(
    key: string,
    value: string,
    options: { readonly ttl: Duration; readonly ifAbsent?: boolean },
  ): Promise<boolean> {
    const ttlMs = toMilliseconds(options.ttl, 'Store.set option "ttl"');
    const args = [value, String(ttlMs), options.ifAbsent ? '1' : '0'];
    return (await this.#write('cmdxSet', key, args)) === 1;
  }

  async incr(
    key: string,
    options: { readonly by?: number; readonly ttl: Duration },
  ): Promise<number> {
    const { by, ttlMs } = incrementOf(options);
    return this.#write('cmdxIncr', key, [String(by), String(ttlMs)]);
  }

  async delete(key: string, options: { readonly ifEquals?: string } = {}): Promise<boolean> {
    const { ifEquals } = options;
    const args = ifEquals === undefined ? ['0', ''] : ['1', ifEquals];
    return (await this.#write('cmdxDelete', key, args)) === 1;
  }

  /** @returns seconds; `Infinity` for a key that something else has stored without a ttl */
  remainingTtl(key: string): Promise<number | undefined> {
    return this.#read(key, async (client) => {
      const ms = await client.pttl(key);
      if (ms === -2) return undefined;
      return ms === -1 ? Infinity : ms / 1_000;
    });
  }

  async inspect(key: string): Promise<KeyReport | undefined> {
    const reply = await this.#settle(Deadline.after(this.timeoutMs), (call) =>
      this.#exchange(call, inspectCall(key)),
    );
    const [now, value, ms] = reply;
    if (ms === undefined) return undefined;
    const remainingTtl = ms === -1 ? Infinity : Number(ms) / 1_000;
    return { value: String(value), remainingTtl, at: Math.floor(Number(now) / 1_000) };
  }

  /**
   * Closes the store's own connection. Calls that are under way get their timeout to settle, and
   * what could not be given back before is tried once more within the same time.
   */
  override async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const deadline = Deadline.after(this.timeoutMs);
    await atMost(deadline.remaining(), this.#idle());
    // Whoever has been granted something just now gives it back in this turn.
    await new Promise((resolve) => setImmediate(resolve));
    this.#unreturned.stop();
    if (this.#unreturned.size > 0) await atMost(deadline.remaining(), this.#unreturned.drain());
    await atMost(LONGEST_GOODBYE_MS, this.#link.close());
  }

  async #enter(steps: readonly EnterStep[], call: Call): Promise<EnterReply[]> {
    const replies: EnterReply[] = [];
    const undos: ReturnStep[] = [];
    for (const batch of this.#batches(steps)) {
      const reply = await this.#exchange(call, enterCall(batch));
      replies.push(...decodeReplies(batch, reply));
      if (!replies.at(-1)?.admitted) {
        await this.#undo(undos, call);
        // The lost first try may have been admitted, then held what this refusal does not know of.
        if (call.resent) this.#unreturned.add(undosOf(steps));
        break;
      }
      undos.push(...undosOfNew(batch, reply));
    }
    return replies;
  }

  async #undo(undos: readonly ReturnStep[], call: Call): Promise<void> {
    for (const step of undos.toReversed()) {
      try {
        checkLeft(await this.#exchange(call, leaveCall([step])));
      } catch {
        this.#unreturned.add([step]);
      }
    }
  }

  /** In the opposite order of `enter`, where the order can be seen. */
  async #leave(steps: readonly LeaveStep[], call: Call): Promise<LeaveReply[]> {
    const replies: LeaveReply[] = [];
    for (const batch of this.#batches(steps).toReversed()) {
      const reply = await this.#exchange(call, leaveCall(batch));
      replies.unshift(...decodeLeave(batch, reply, call.resent));
    }
    return replies;
  }

  async #giveBack(steps: readonly ReturnStep[]): Promise<void> {
    // While the store is open the next connection tries again by itself.
    if (!this.#link.ready && !this.#closed) throw new Error('not connected');
    const client = this.#link.ready ?? (await this.#link.use());
    // A node that is away keeps no other from being told.
    const sent = await Promise.allSettled(
      this.#batches(steps).map(async (batch) => {
        const { script, keys, args, again = [] } = leaveCall(batch);
        const clock = await this.#link.clockOf(client, keys[0] ?? '');
        checkLeft(await this.#link.run(client, clock, script, keys, [...args, ...again]));
      }),
    );
    for (const each of sent) if (each.status === 'rejected') throw each.reason;
  }

  #batches<T>(steps: readonly T[]): (readonly T[])[] {
    if (steps.length === 0) return [];
    return this.#oneByOne ? steps.map((step) => [step]) : [steps];
  }

  /** Reading changes nothing, so a read whose reply was lost is simply sent again. */
  #read<T>(key: string, command: (client: OwnClient) => Promise<T>): Promise<T> {
    return this.#settle(Deadline.after(this.timeoutMs), async (call) => {
      const send = async (): Promise<T> => {
        const client = this.#link.ready ?? (await this.#connected(call));
        await this.#link.clockOf(client, key);
        call.sent = true;
        return outside(() => command(client));
      };
      try {
        return await send();
      } catch (error) {
        if (!lostItsReply(error) || this.#closed) throw error;
        await this.#recover(call, error);
        return send();
      }
    });
  }

  async #write(script: ScriptName, key: string, args: readonly string[]): Promise<number> {
    const deadline = Deadline.after(this.timeoutMs);
    const reply = await this.#settle(deadline, (call) =>
      this.#exchange(call, { script, keys: [key], args, hasDeadline: true }),
    );
    return Number(reply[1]);
  }

  /**
   * Runs a call so that it settles by its deadline and fails with a StoreError only. What it may
   * have taken without telling anybody is given back in the background.
   */
  #settle<T>(
    deadline: Deadline,
    run: (call: Call) => Promise<T>,
    undos: readonly LeaveStep[] = [],
  ): Promise<T> {
    if (this.#closed) return Promise.reject(closedError());
    const call = new Call(deadline);
    const expired = (): Error => call.expire(this.#link.lastError);
    this.#running += 1;
    return outside(() => this.#pending.settleBy(deadline.at, run(call), expired)).then(
      (value) => {
        this.#settled();
        return value;
      },
      (error: unknown) => {
        if (call.written && undos.length > 0) this.#unreturned.add(undos);
        this.#settled();
        throw this.#closed && lostItsReply(error) ? closedError() : toStoreError(error);
      },
    );
  }

  #settled(): void {
    this.#running -= 1;
    if (this.#running === 0) this.#onIdle?.();
  }

  async #idle(): Promise<void> {
    if (this.#running > 0) await new Promise<void>((resolve) => (this.#onIdle = resolve));
  }

  /** One trip; a second one if its reply was lost, or if the store's clock was stepped. */
  async #exchange(call: Call, script: ScriptCall): Promise<ScriptReply> {
    try {
      return await this.#send(call, script, []);
    } catch (error) {
      if (error instanceof LateError && error.stepped) return this.#send(call, script, []);
      if (!lostItsReply(error) || !script.again || this.#closed) throw error;
      await this.#recover(call, error);
    }
    return this.#send(call, script, script.again);
  }

  /** Before a second try. A cluster client is asked to find out who serves the slots now. */
  async #recover(call: Call, error: unknown): Promise<void> {
    this.#link.lastError ??= error;
    call.sent = false;
    call.resent = true;
    if (!this.#oneByOne) return;
    this.#link.refreshSlots();
    await atMost(REFRESH_SLOTS_MS, new Promise(() => undefined));
  }

  async #send(
    call: Call,
    { script, keys, args, hasDeadline }: ScriptCall,
    flags: readonly string[],
  ): Promise<ScriptReply> {
    const client = this.#link.ready ?? (await this.#connected(call));
    const known = this.#link.clockOf(client, keys[0] ?? '');
    const clock = known instanceof StoreClock ? known : await known;
    if (call.deadline.remaining() <= 0) throw new LateError(false);
    const deadline = hasDeadline ? [String(clock.fromLocal(call.deadline.at))] : [];
    call.sent = call.written = true;
    return this.#link.run(client, clock, script, keys, [...args, ...deadline, ...flags]);
  }

  async #connected(call: Call): Promise<OwnClient> {
    if (call.deadline.remaining() <= 0) throw new LateError(false);
    return this.#link.use(call);
  }
}

function sourceOf(options: RedisStoreOptions): Redis | Cluster | string {
  const given: { readonly client?: unknown; readonly url?: unknown } = options ?? {};
  const names = Object.keys(given);
  const [name] = names;
  if (names.length === 1 && name === 'url' && typeof given.url === 'string' && given.url) {
    return given.url;
  }
  if (names.length === 1 && name === 'client' && isClient(given.client)) return given.client;
  throw new DefinitionError(
    `new RedisStore(): expected { client } with an ioredis Redis or Cluster, or { url } with a string; got ${show(options)}`,
  );
}

function isClient(value: unknown): value is Redis | Cluster {
  const client = value as Partial<Redis> | null | undefined;
  return typeof client?.duplicate === 'function' && typeof client.defineCommand === 'function';
}

function closedError(): StoreError {
  return new StoreError('closed', 'The Redis store is closed.');
}
