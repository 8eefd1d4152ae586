import type { ExecutionContext } from '@nestjs/common';
import { isObservable } from 'rxjs';
import type { Answer } from '../answer.js';
import { andThen, type Awaitable } from '../awaitable.js';
import { messageOf } from '../errors/reading.js';
import type { Ending } from '../policies/policy.js';
import { conclude } from './envelope.js';
import { endingOf, FIRST_SERVER_ERROR, SERVER_ERROR, UNANSWERED } from './endings.js';
import type { Plan } from './plan.js';
import type { Outcome } from './result.js';
import { Run } from './run.js';
import type { Runtime } from './runtime.js';
import { liveScope, type Scope, scopes } from './scope.js';
import type { WrapperRecord } from './wrapper-record.js';

/** What became of a handler's answer. */
export type AnswerEnd =
  | { readonly error: unknown }
  /** `answer` over HTTP; elsewhere the value itself is what the caller gets. */
  | { readonly value: unknown; readonly answer: Answer | undefined };

/**
 * The envelope of one request to a guarded Nest handler. The interceptor opens it and publishes its
 * run; the wrapped method, reached after pipes, enters the rings; the interceptor closes it when
 * the answer has been made.
 *
 * It is the scope of the interceptors inside ours, and the run that of the body: so a handler that
 * an interceptor calls again is told from one that calls itself.
 */
export class HandlerEnvelope {
  readonly kind = 'envelope';
  /** Whether it is a client of HTTP that is answered. */
  readonly http: boolean;
  #outer: Scope | undefined;
  #context: ExecutionContext | undefined;
  #current: Run;
  #entered = false;
  #streamEnded = false;
  #value: unknown;

  constructor(
    private readonly runtime: Runtime,
    private readonly plan: Plan,
    context: ExecutionContext,
  ) {
    this.#context = context;
    this.http = context.getType<string>() === 'http';
    this.#outer = scopes.getStore();
    this.#current = new Run(runtime, plan, this.#outer, this);
  }

  /** The scope around the request. */
  get outer(): Scope | undefined {
    return this.#outer;
  }

  /** Whether both the answer and the body have ended. */
  get ended(): boolean {
    return this.#streamEnded && this.#current.ended;
  }

  /** The request's context, until both the answer and the body have ended. */
  get context(): ExecutionContext | undefined {
    return this.#context;
  }

  /** The run that the handler's last call was, or will be. */
  get current(): Run {
    return this.#current;
  }

  /** Whether a call of this wrapper on this instance is the handler that the envelope was opened for. */
  isFor(record: WrapperRecord, instance: object): boolean {
    return (
      this.#context !== undefined &&
      record.wrapper === this.#context.getHandler() &&
      instance.constructor === this.#context.getClass()
    );
  }

  /**
   * The run for a call of the handler. A second call in one request (an inner interceptor that
   * retries) is a new run; what the first one finished is closed before.
   */
  nextRun(): Awaitable<Run> {
    if (!this.#entered) {
      this.#entered = true;
      return this.#current;
    }
    return andThen(this.close(), () => {
      this.#current = new Run(this.runtime, this.plan, this.#outer, this);
      return this.#current;
    });
  }

  /** Keeps a run open whose body has succeeded, unless nobody makes an answer of it any more. */
  takesOver(run: Run, value: unknown): boolean {
    if (run !== this.#current || this.#streamEnded) return false;
    this.#value = value;
    run.awaitsAnswer = true;
    // A stream is still the body's own work.
    run.working = isObservable(value);
    return true;
  }

  /**
   * Ends the run that waits for its answer, if there is one.
   *
   * @param end left out when nobody will ever know what the answer would have been
   */
  close(end?: AnswerEnd): Awaitable<void> {
    const run = this.#current;
    if (!run.awaitsAnswer) return undefined;
    run.awaitsAnswer = false;
    const outcome = this.#outcome(end);
    return conclude(
      run,
      outcome,
      outcome.status === 'failed' ? endingOf(run, outcome.error) : endOf(end),
    );
  }

  /** The answer has been made, or nobody waits for it: a body that still runs ends by itself. */
  endStream(): void {
    this.#streamEnded = true;
    if (!this.#entered) this.#current.ended = true;
    if (this.ended) this.#dropContext();
    else void this.close();
  }

  /** Called when a run of this envelope has ended. */
  onEnd(run: Run): void {
    if (this.ended && run === this.#current) this.#dropContext();
  }

  #dropContext(): void {
    this.#context = undefined;
    this.#value = undefined;
    this.#outer = liveScope(this.#outer);
  }

  /** An error after the body succeeded is the body's own only where its answer was a stream. */
  #outcome(end: AnswerEnd | undefined): Outcome {
    const value = this.#value;
    if (!isObservable(value)) return { status: 'success', value };
    if (!end || !('error' in end)) return { status: 'success', value: undefined };
    const { error } = end;
    return { status: 'failed', error, reason: messageOf(error), metadata: {} };
  }
}

function endOf(end: AnswerEnd | undefined): Ending {
  if (!end || 'error' in end) return UNANSWERED;
  const { value, answer } = end;
  // One that says that the server has failed is no success, however it was made.
  if (answer && answer.status >= FIRST_SERVER_ERROR) return SERVER_ERROR;
  return answer ? { kind: 'answered', answer } : { kind: 'returned', value, handled: true };
}
