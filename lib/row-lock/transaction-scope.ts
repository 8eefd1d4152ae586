import { AsyncLocalStorage } from 'node:async_hooks';

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

  current(): Tx | undefined {
    const handle = this.#handles.getStore();
    return handle && !handle.ended ? handle.tx : undefined;
  }
}
