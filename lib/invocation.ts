import type { ExecutionContext } from '@nestjs/common';

/** The lease that an invocation holds. */
export interface HeldLock {
  /** The full store key. */
  readonly key: string;
}

/** One call of a guarded method, as key resolvers, gates and limiters see it. */
export interface Invocation {
  /** This run. A uuid v7; the holder's name in a lock and a claim. */
  readonly tid: string;
  /** The chain: every guarded call nested under one root. A uuid v7. */
  readonly cid: string;
  /** What `forRoot({ correlationId })` answered for the root, if anything. */
  readonly xid: string | undefined;
  /** Whether this run started the chain. */
  readonly root: boolean;
  /** `ClassName.methodName`, ClassName being the class of the instance. */
  readonly task: string;
  /** The method's arguments: after pipes, on a Nest handler. */
  readonly args: readonly unknown[];
  readonly instance: object;
  /**
   * Aborts when the body should stop: the application is closing and its patience has ended
   * (`ShuttingDownError`), or the claim of the run, or of a run around it, is gone (`LeaseLostError`).
   */
  readonly signal: AbortSignal;
  /** The lease this run holds, once `@LockWith` has granted it. */
  readonly lock?: HeldLock | undefined;
  /** The row that `@WithRowLock` has locked, or the rows: read under the lock when first asked for. */
  readonly row?: Promise<unknown> | undefined;
  /** The Nest handler that this run is, or is called from; gone once that handler has ended. */
  readonly context?: ExecutionContext | undefined;
}
