import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { outside } from '../process-wide.js';

/** Finds the handle of a transaction again, in whatever runs inside it. */
export class TransactionScope<Tx> {
  readonly #handles = new AsyncLocalStorage<{ readonly tx: Tx; ended: boolean }>();

  /** Runs a body that finds `tx`, until it settles: what it leaves behind is in no transaction. */
  async run<T>(tx: Tx, body: () => Promise<T>): Promise<T> {
    const handle = { tx, ended: false };
    try {
      return await this.#handles.run(handle, body);
    } finally {
      handle.ended = true;
    }
  }

  /**
   * Runs a body in a transaction that a library opens by a callback. The library is called outside
   * every async context, and only the body is in that of the caller: a connection that it makes
   * outlives the call.
   *
   * @param open calls the library with what to run inside
   */
  open<T>(
    body: () => Promise<T>,
    open: (inside: (tx: Tx) => Promise<T>) => Promise<unknown>,
  ): Promise<T> {
    const inside = AsyncResource.bind((tx: Tx) => this.run(tx, body));
    return outside(() => open((tx) => inside(tx))) as Promise<T>;
  }

  current(): Tx | undefined {
    const handle = this.#handles.getStore();
    return handle && !handle.ended ? handle.tx : undefined;
  }
}
