import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Deadline,
  type EnterReply,
  type EnterStep,
  type Hold,
  type LeaveReply,
  type LeaveStep,
  MemoryStore,
  Store,
} from 'nestjs-cmdx';

/** The memory store at a distance: every step takes a few milliseconds to get there. */
export class RemoteStore extends Store {
  readonly #memory = new MemoryStore();

  constructor(private readonly distanceMs: number) {
    super();
  }

  /** Keys held now. */
  get size(): number {
    return this.#memory.size;
  }

  async enter(steps: readonly EnterStep[], deadline: Deadline): Promise<EnterReply[]> {
    await sleep(this.distanceMs);
    return this.#memory.enter(steps, deadline);
  }

  async leave(steps: readonly LeaveStep[]): Promise<LeaveReply[]> {
    await sleep(this.distanceMs);
    return this.#memory.leave(steps);
  }

  async renew(holds: readonly Hold[]): Promise<readonly boolean[]> {
    await sleep(this.distanceMs);
    return this.#memory.renew(holds);
  }

  inspect(...args: Parameters<Store['inspect']>): ReturnType<Store['inspect']> {
    return this.#memory.inspect(...args);
  }

  get(...args: Parameters<Store['get']>): ReturnType<Store['get']> {
    return this.#memory.get(...args);
  }

  set(...args: Parameters<Store['set']>): ReturnType<Store['set']> {
    return this.#memory.set(...args);
  }

  incr(...args: Parameters<Store['incr']>): ReturnType<Store['incr']> {
    return this.#memory.incr(...args);
  }

  delete(...args: Parameters<Store['delete']>): ReturnType<Store['delete']> {
    return this.#memory.delete(...args);
  }

  remainingTtl(...args: Parameters<Store['remainingTtl']>): ReturnType<Store['remainingTtl']> {
    return this.#memory.remainingTtl(...args);
  }

  override close(): Promise<void> {
    return this.#memory.close();
  }
}
