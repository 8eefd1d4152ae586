import { isObservable, lastValueFrom, type Observable } from 'rxjs';
import { once } from '../process-wide.js';
import type { Result } from './result.js';
import type { Run } from './run.js';
import { type CollectorScope, liveScope, scopes } from './scope.js';

class CmdxHandle {
  /**
   * Calls a guarded method and answers its {@link Result} instead of its value or error.
   *
   * @param fn makes exactly one guarded call at its top level; calls nested in it do not count
   * @returns the Result of that call, once it has ended
   * @throws Error when `fn` made no guarded call, or several; an error of `fn` that is not the call's own
   */
  async execute<T>(fn: () => Promise<T> | Observable<T> | T): Promise<Result<Awaited<T>>> {
    const collector: CollectorScope = {
      kind: 'collector',
      runs: [],
      outer: liveScope(scopes.getStore()),
      ended: false,
    };
    try {
      return (await collect(collector, fn)) as Result<Awaited<T>>;
    } finally {
      collector.ended = true;
      collector.outer = liveScope(collector.outer);
      for (const run of collector.runs) run.forget();
    }
  }
}

async function collect(collector: CollectorScope, fn: () => unknown): Promise<Result> {
  const thrown = await scopes.run(collector, () => settle(fn));
  const [run, ...others] = collector.runs;
  if (!run && thrown) throw thrown.error;
  if (!run || others.length > 0) {
    throw new Error(
      `cmdx.execute(fn): expected exactly one guarded call at the top level of fn, got ${collector.runs.length}`,
    );
  }
  await ended(run);
  const { result } = run;
  if (thrown && thrown.error !== result.cause) throw thrown.error;
  return result;
}

/** @returns what `fn` failed with, if it did */
async function settle(fn: () => unknown): Promise<{ readonly error: unknown } | undefined> {
  try {
    const returned = fn();
    await (isObservable(returned)
      ? lastValueFrom(returned, { defaultValue: undefined })
      : returned);
    return undefined;
  } catch (error) {
    return { error };
  }
}

/** A call that `fn` did not wait for is waited for here. */
function ended(run: Run): Promise<void> | undefined {
  if (run.ended) return undefined;
  return new Promise((resolve) => {
    run.onEnd = resolve;
  });
}

/** The application's handle on its guarded methods. Injectable; one class per process. */
export const Cmdx: typeof CmdxHandle = once('Cmdx', () => CmdxHandle);
export interface Cmdx extends CmdxHandle {}
