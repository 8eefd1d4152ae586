import { setMaxListeners } from 'node:events';
import type { ExecutionContext } from '@nestjs/common';
import { type Awaitable, isThenable } from '../awaitable.js';
import { Bag } from '../bag.js';
import type { Clock } from '../clock/clock.js';
import { Deadline } from '../clock/deadline.js';
import { ShuttingDownError } from '../errors/refusals.js';
import { StoreError } from '../errors/store.error.js';
import { outside } from '../process-wide.js';
import type { Transactions } from '../row-lock/transactions.js';
import { PendingCalls } from '../store/pending-calls.js';
import { soundReplies } from '../store/sound-replies.js';
import type { EnterReply, EnterStep, Hold, LeaveReply, LeaveStep, Store } from '../store/store.js';
import { undosOf } from '../store/undo.js';
import type { Telemetry } from '../telemetry/telemetry.js';
import type { Invoker } from './binding.js';
import { perform } from './envelope.js';
import { HandlerEnvelope } from './handler-envelope.js';
import { Heartbeat } from './heartbeat.js';
import { UNANSWERED, UNUSED } from './endings.js';
import type { Plan } from './plan.js';
import { Run } from './run.js';
import { type Scope, scopes } from './scope.js';
import { performStream } from './stream.js';
import type { WrapperRecord } from './wrapper-record.js';

/** What a class is to the runtime. */
type Target = abstract new (...args: never[]) => object;

/** Finds plans; made by the boot, which knows the application. */
export interface Planner {
  plan(target: Target, method: PropertyKey): Plan;
  /** Called once per class, when Nest has made its first instance. */
  adopt(target: Target): void;
}

export interface RuntimeOptions {
  readonly store: Store;
  readonly telemetry: Telemetry;
  readonly clock: Clock;
  readonly planner: Planner;
  readonly storeTimeoutMs: number;
  readonly shutdownTimeoutMs: number;
  /** Where rows are locked, if they are. */
  readonly transactions?: Transactions | undefined;
  readonly correlationId?: ((context?: ExecutionContext) => string | undefined) | undefined;
}

/** A store settles by its deadline; this much later we stop believing it. */
const GRACE_MS = 50;

/** Runs the guarded methods of one application. */
export class Runtime implements Invoker {
  readonly store: Store;
  readonly telemetry: Telemetry;
  readonly clock: Clock;
  readonly transactions: Transactions | undefined;
  /** How many calls of this process wait for each key. */
  readonly waiters = new Map<string, number>();
  readonly heartbeat: Heartbeat;
  readonly #options: RuntimeOptions;
  readonly #running = new Bag<Run>();
  readonly #plans = new WeakMap<Target, Map<PropertyKey, Plan>>();
  readonly #calls = new PendingCalls();
  readonly #closing = new AbortController();
  #drained: (() => void) | undefined;

  constructor(options: RuntimeOptions) {
    this.#options = options;
    this.store = options.store;
    this.telemetry = options.telemetry;
    this.clock = options.clock;
    this.transactions = options.transactions;
    this.heartbeat = new Heartbeat(options.clock, (holds) => this.#renewStore(holds));
    setMaxListeners(0, this.#closing.signal);
  }

  /** Nest has made an instance of a decorated class. */
  adopt(instance: object): void {
    const target = instance.constructor as Target;
    if (this.#plans.has(target)) return;
    this.#options.planner.adopt(target);
    this.#plans.set(target, new Map());
  }

  invoke(record: WrapperRecord, instance: object, args: unknown[]): unknown {
    const { original } = record;
    let plan: Plan;
    try {
      plan = this.planOf(instance.constructor as Target, record.method);
    } catch (error) {
      // A method borrowed by an instance of another guarded class.
      return Promise.reject(error);
    }
    const scope = scopes.getStore();
    if (record.rank < plan.rank && passesThrough(scope, record, instance)) {
      return original.apply(instance, args);
    }
    const handler = scope?.kind === 'envelope' && scope.isFor(record, instance) ? scope : undefined;
    if (plan.stream) {
      return performStream(
        () =>
          prepare(
            handler ? handler.nextRun() : new Run(this, plan, scopes.getStore()),
            instance,
            args,
          ),
        (run) => original.apply(instance, [...run.args]),
      );
    }
    const run = prepare(handler ? handler.nextRun() : new Run(this, plan, scope), instance, args);
    const start = (opened: Run): unknown => {
      // With schemas the body sees what they made of the arguments.
      const body =
        plan.inputs || plan.rowLock?.rowAt !== undefined
          ? (): unknown => original.apply(instance, [...opened.args])
          : (): unknown => original.apply(instance, args);
      return scopes.run(opened, perform, opened, body);
    };
    return run instanceof Promise ? run.then(start) : start(run);
  }

  /** The plan of a method, compiled at first sight. */
  planOf(target: Target, method: PropertyKey): Plan {
    let plans = this.#plans.get(target);
    if (!plans) this.#plans.set(target, (plans = new Map()));
    let plan = plans.get(method);
    if (!plan) plans.set(method, (plan = this.#options.planner.plan(target, method)));
    return plan;
  }

  /** Opens the envelope of a guarded handler, for one request. */
  openHandler(plan: Plan, context: ExecutionContext): HandlerEnvelope {
    return new HandlerEnvelope(this, plan, context);
  }

  /** The external id of a chain that begins here. */
  correlate(context: ExecutionContext | undefined): string | undefined {
    return this.#options.correlationId?.(context);
  }

  /** Asks the store; settles soon after `storeTimeout`, whatever the store does. */
  enterStore(steps: readonly EnterStep[]): Awaitable<EnterReply[]> {
    const deadline = Deadline.after(this.#options.storeTimeoutMs);
    const answer = this.store.enter(steps, deadline);
    if (!isThenable(answer)) return soundReplies(steps, answer);
    const sound = Promise.resolve(answer).then((replies) => soundReplies(steps, replies));
    let gaveUp = false;
    sound.then(
      (replies) => gaveUp && this.#giveBackLate(steps, replies),
      () => undefined,
    );
    return this.#calls.settleBy(deadline.at + GRACE_MS, sound, () => {
      gaveUp = true;
      return new StoreError('timeout', 'The store did not settle by its deadline.');
    });
  }

  /** Gives back to the store; settles soon after `storeTimeout`. */
  leaveStore(steps: readonly LeaveStep[]): Awaitable<LeaveReply[]> {
    const answer = this.store.leave(steps);
    return isThenable(answer) ? this.#patiently(answer) : answer;
  }

  #renewStore(holds: readonly Hold[]): Promise<readonly boolean[]> {
    return this.#patiently(this.store.renew(holds));
  }

  #patiently<T>(answer: Promise<T>): Promise<T> {
    const at = performance.now() + this.#options.storeTimeoutMs + GRACE_MS;
    return this.#calls.settleBy(
      at,
      Promise.resolve(answer),
      () => new StoreError('timeout', 'The store did not settle in time.'),
    );
  }

  /** Sleeps between two tries. @throws ShuttingDownError when the application closes */
  async pause(run: Run, ms: number): Promise<void> {
    const { signal } = this.#closing;
    try {
      await this.clock.sleep(ms, signal);
    } catch (error) {
      throw signal.aborted ? new ShuttingDownError(run) : error;
    }
  }

  /** Lets a run begin. @throws ShuttingDownError for a new chain once the application closes */
  admit(run: Run): void {
    if (this.#closing.signal.aborted && run.root) throw new ShuttingDownError(run);
    this.#running.add(run);
  }

  dismiss(run: Run): void {
    this.#running.remove(run);
    if (this.#running.size === 0) this.#drained?.();
  }

  /**
   * Waiters are rejected at once; running bodies get `shutdownTimeout` to end, then their signals
   * abort and their leases are given back.
   */
  async shutDown(): Promise<void> {
    this.#closing.abort(new Error('The application is shutting down.'));
    if (!(await this.#drain())) await this.#abandon();
    this.heartbeat.stop();
  }

  /** @returns whether every run ended in time */
  #drain(): Promise<boolean> {
    if (this.#running.size === 0) return Promise.resolve(true);
    return outside(
      () =>
        new Promise((resolve) => {
          const timeout = setTimeout(() => resolve(false), this.#options.shutdownTimeoutMs);
          this.#drained = () => {
            clearTimeout(timeout);
            resolve(true);
          };
        }),
    );
  }

  /**
   * Of a body that still runs, nobody knows what it has done: its claim is left to run out, and told
   * to be done only if the body still gets there. One that has succeeded is done, whatever its
   * answer would have been.
   */
  async #abandon(): Promise<void> {
    const steps: LeaveStep[] = [];
    // Who hears of the abort may end a run.
    const running = [...this.#running];
    for (const run of running) run.condemn(new ShuttingDownError(run));
    for (const run of running) {
      run.abort(new ShuttingDownError(run));
      const kept = run.holds.filter(({ beat }) => beat && run.working);
      const ending = run.awaitsAnswer ? UNANSWERED : UNUSED;
      for (const granted of run.holds) {
        if (kept.includes(granted)) continue;
        const { policy, step } = granted.ring;
        const back = policy.giveBack(step, granted.reply, ending);
        if (back) steps.push(back);
      }
      run.holds = kept;
    }
    this.#running.clear();
    if (steps.length === 0) return;
    try {
      await this.leaveStore(steps);
    } catch {
      // The store keeps what it could not give back until its ttl; there is nobody left to tell.
    }
  }

  /** A store that answered after all granted what nobody uses. */
  #giveBackLate(steps: readonly EnterStep[], replies: readonly EnterReply[]): void {
    if (replies.some((reply) => !reply.admitted)) return;
    const leaves = undosOf(steps);
    if (leaves.length === 0) return;
    outside(async () => {
      try {
        await this.store.leave(leaves);
      } catch {
        // It stays until its ttl; the caller has long been told that the store did not answer.
      }
    });
  }
}

/** Gives a run its call. */
function prepare<R extends Awaitable<Run>>(run: R, instance: object, args: unknown[]): R;
function prepare(run: Awaitable<Run>, instance: object, args: unknown[]): Awaitable<Run> {
  if (run instanceof Promise) return run.then((opened) => prepare(opened, instance, args));
  run.instance = instance;
  run.args = args;
  return run;
}

/**
 * Whether a wrapper is reached from inside the open envelope of a more derived one around the same
 * method of the same instance: by `super.method()`, or below a hoisted wrapper.
 */
function passesThrough(scope: Scope | undefined, record: WrapperRecord, instance: object): boolean {
  let each = scope;
  while (each && each.kind !== 'handler') {
    if (
      each.kind === 'run' &&
      !each.ended &&
      each.instance === instance &&
      each.plan.method === record.method
    ) {
      return each.plan.rank > record.rank;
    }
    each = each.outer;
  }
  return false;
}
