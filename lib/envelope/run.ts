import type { ExecutionContext } from '@nestjs/common';
import type { Caller } from '../answer.js';
import type { Bagged } from '../bag.js';
import type { HeldLock, Invocation } from '../invocation.js';
import type { EnterReply, EnterStep } from '../store/store.js';
import type { StorePolicy } from '../policies/policy.js';
import type { HandlerEnvelope } from './handler-envelope.js';
import type { Beat } from './heartbeat.js';
import { newId } from './ids.js';
import type { Plan } from './plan.js';
import type { Outcome, Result } from './result.js';
import type { Runtime } from './runtime.js';
import { contextOf, liveScope, openRun, type Scope } from './scope.js';

const NO_ARGUMENTS: readonly unknown[] = Object.freeze([]);
const NO_INSTANCE = Object.freeze({});

/** A ring of a batch, with what it asks of the store. */
export interface AskingRing {
  readonly policy: StorePolicy;
  readonly key: string;
  readonly step: EnterStep;
}

/** What the store has granted to a ring. */
export interface Granted {
  readonly ring: AskingRing;
  readonly reply: EnterReply;
  /** Present when it is kept alive. */
  readonly beat: Beat | undefined;
}

/** What the invocations of one chain share. */
export interface Chain {
  readonly xid: string | undefined;
  /** Made when somebody first asks. */
  cid: string | undefined;
}

/** One invocation while it runs: its ids, what it holds, and how it ended. */
export class Run implements Invocation, Bagged {
  readonly kind = 'run';
  /** Where it stands among those that run. */
  at = -1;
  args: readonly unknown[] = NO_ARGUMENTS;
  instance: object = NO_INSTANCE;
  lock: HeldLock | undefined;
  /** What is given back in the end, in ring order. */
  holds: Granted[] = [];
  /** Whether the body has succeeded and the envelope waits for the handler's answer to be made. */
  awaitsAnswer = false;
  ended = false;
  /** Whether the body is at work: it has begun, and not succeeded yet. */
  working = false;
  /** Whether what the body returned does not fit its schema. */
  outputRefused = false;
  /** How often the body was repeated. */
  retries = 0;
  /** Whether the caller has left before the body began: waiting for it is pointless. */
  abandoned = false;
  /** Whether the body has failed in a transaction that is not its own: repeated, it would fail again. */
  spoiled = false;
  /** Reads the row that is locked for it, while it is. */
  readRow: (() => Promise<unknown>) | undefined;
  /** How it ended, until everybody has been told; a skip is remembered. */
  outcome: Outcome | undefined;
  /** Whether `cmdx.execute` is still going to ask for the result. */
  awaited = false;
  /** Told once, when the run has ended. */
  onEnd: (() => void) | undefined;
  /** The scope around this run, without what has ended. */
  outer: Scope | undefined;
  /** The invocation around this one. Once this one has ended: the nearest that has not. */
  parent: Run | undefined;
  /** Whether this run started the chain. */
  readonly root: boolean;
  readonly chain: Chain;
  readonly startedAt: number;
  #tid: string | undefined;
  #result: Result | undefined;
  #controller: AbortController | undefined;
  /** Why this very run was aborted. */
  #abortReason: unknown;
  /** The calls inside this one whose signal somebody has asked for. */
  #listeners: Set<Run> | undefined;
  #durationMs = 0;

  /** @param handler present when the interceptor opened the envelope of a Nest handler */
  constructor(
    readonly runtime: Runtime,
    readonly plan: Plan,
    scope: Scope | undefined,
    readonly handler?: HandlerEnvelope,
  ) {
    this.outer = liveScope(scope);
    this.parent = openRun(this.outer);
    this.startedAt = runtime.clock.now();
    this.root = this.parent === undefined;
    this.chain = this.parent?.chain ?? { xid: runtime.correlate(this.context), cid: undefined };
    if (scope?.kind === 'collector' && !scope.ended) {
      this.awaited = true;
      scope.runs.push(this);
    }
  }

  get task(): string {
    return this.plan.task;
  }

  get tid(): string {
    return (this.#tid ??= newId());
  }

  get cid(): string {
    return (this.chain.cid ??= newId());
  }

  get xid(): string | undefined {
    return this.chain.xid;
  }

  get context(): ExecutionContext | undefined {
    return this.handler ? this.handler.context : contextOf(this.outer);
  }

  /** Aborts with this run, or with one around it: what they do together is of no use any more. */
  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      const reason = this.#reasonOfChain();
      if (reason !== undefined) this.#controller.abort(reason);
      else if (!this.ended) this.#listen();
    }
    return this.#controller.signal;
  }

  /** Who gets what comes of this run. */
  get caller(): Caller {
    if (!this.handler) return 'code';
    return this.handler.http ? 'http' : 'transport';
  }

  /**
   * The body begins, also inside a run that was aborted: it may be what cleans up.
   *
   * @throws the reason, when this very run was aborted before
   */
  startWork(): void {
    if (this.#abortReason !== undefined) throw this.#abortReason;
    this.working = true;
  }

  get row(): Promise<unknown> | undefined {
    return this.readRow?.();
  }

  /** Whether this run was aborted, or one around it. */
  get aborted(): boolean {
    return this.#reasonOfChain() !== undefined;
  }

  /** Aborts this run, and tells the calls inside it. */
  abort(reason: Error): void {
    this.condemn(reason);
    this.#tellAborted(reason);
  }

  /** Notes why it is going to be aborted. The first reason stays. */
  condemn(reason: Error): void {
    this.#abortReason ??= reason;
  }

  #tellAborted(reason: Error): void {
    this.#controller?.abort(this.#abortReason ?? reason);
    for (const each of this.#listeners ?? []) each.#tellAborted(reason);
  }

  #reasonOfChain(): unknown {
    return this.#abortReason ?? (this.parent && this.parent.#reasonOfChain());
  }

  /** Wants to hear when the nearest run around it that has not ended is aborted. */
  #listen(): void {
    let outer = this.parent;
    while (outer?.ended) outer = outer.parent;
    if (!outer) return;
    outer.#listeners ??= new Set();
    outer.#listeners.add(this);
    outer.#listen();
  }

  /** It has ended: who is still at work inside it hears of what is around it from now on. */
  #stopListening(): void {
    if (this.parent && this.parent.#listeners) this.parent.#listeners.delete(this);
    for (const each of this.#listeners ?? []) each.#listen();
    this.#listeners = undefined;
  }

  /** Whether the caller waits for a lease that its own chain holds: it would wait for itself. */
  isHeldByChain(holder: string | undefined): boolean {
    if (holder === undefined) return false;
    for (let each = this.parent; each; each = each.parent) {
      if (!each.ended && each.tid === holder) return true;
    }
    return false;
  }

  /** The token of a call around this one that probes the same breaker, if one does. */
  permitOfChain(key: string): string | undefined {
    for (let each = this.parent; each; each = each.parent) {
      if (each.ended) continue;
      for (const { ring, reply } of each.holds) {
        if (ring.key !== key || ring.step.kind !== 'circuit') continue;
        if (reply.kind === 'circuit' && reply.state === 'half_open') return ring.step.token;
      }
    }
    return undefined;
  }

  /** How the run ended; only after it has, and before it is forgotten. */
  get result(): Result {
    if (!this.outcome) throw new Error(`${this.task} has not ended yet, or was forgotten`);
    return (this.#result ??= toResult(this, this.outcome));
  }

  /** Marks the end, and lets go of the caller's data: whatever the body left behind keeps only the ids. */
  end(outcome: Outcome): void {
    this.outcome = outcome;
    this.ended = true;
    this.awaitsAnswer = false;
    this.#durationMs = this.runtime.clock.now() - this.startedAt;
    this.args = NO_ARGUMENTS;
    this.instance = NO_INSTANCE;
    this.outer = liveScope(this.outer);
    // A chain of calls of which each starts the next must not keep all of them in memory.
    while (this.parent?.ended) this.parent = this.parent.parent;
    if (this.#controller || this.#listeners) this.#stopListening();
    this.handler?.onEnd(this);
    this.onEnd?.();
  }

  /** Lets go of the value or error: an interval that the body left behind must not keep a whole answer. */
  forget(): void {
    this.awaited = false;
    this.#result = undefined;
    if (this.outcome?.status !== 'skipped') this.outcome = undefined;
  }

  get durationMs(): number {
    return this.#durationMs;
  }
}

/** The first answer, where a duplicate was given it again. */
function replayed(outcome: Outcome): unknown {
  return outcome.status === 'skipped' ? outcome.replay?.value : undefined;
}

function toResult(run: Run, outcome: Outcome): Result {
  const { status } = outcome;
  return Object.freeze({
    status,
    state: status === 'success' ? 'complete' : 'interrupted',
    ok: status !== 'failed',
    ko: status !== 'success',
    value: status === 'success' ? outcome.value : replayed(outcome),
    reason: status === 'success' ? undefined : outcome.reason,
    metadata: Object.freeze(
      status === 'success' ? {} : { ...outcome.metadata },
    ) as Result['metadata'],
    cause: status === 'failed' ? outcome.error : undefined,
    task: run.task,
    tid: run.tid,
    cid: run.cid,
    xid: run.xid,
    retries: run.retries,
    durationMs: run.durationMs,
  } satisfies Result);
}
