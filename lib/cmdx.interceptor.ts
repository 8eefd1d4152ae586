import type { CallHandler, ExecutionContext, NestInterceptor } from '@nestjs/common';
import type { HttpAdapterHost } from '@nestjs/core';
import { Observable, type Subscriber } from 'rxjs';
import { andThen } from './awaitable.js';
import type { ApplicationPlanner } from './boot/planner.js';
import type { AnswerEnd, HandlerEnvelope } from './envelope/handler-envelope.js';
import type { Plan } from './envelope/plan.js';
import type { Outcome } from './envelope/result.js';
import type { Runtime } from './envelope/runtime.js';
import { type HandlerScope, scopes } from './envelope/scope.js';
import { describeThrown } from './errors/reading.js';
import type { AnyClass } from './metadata/method-name.js';
import { answersByItself, renders } from './metadata/nest-metadata.js';
import { wrapperOf } from './metadata/wrappers.js';
import {
  answerHead,
  jsonReplacerOf,
  replayHead,
  SKIPPED_STATUS,
  skippedBody,
} from './transport/http.js';

/** What the interceptor knows of a guarded handler. */
interface GuardedHandler {
  readonly plan: Plan;
  readonly answersByItself: boolean;
  readonly renders: boolean;
}

/**
 * Opens the envelope of a guarded Nest handler and closes it when the answer has been made; the
 * method in between enters the rings, after pipes. For every other handler it only publishes the
 * context, for the guarded services that the handler calls.
 */
export class CmdxInterceptor implements NestInterceptor {
  readonly #handlers = new WeakMap<object, Map<AnyClass, GuardedHandler | undefined>>();
  /** Keeps a context as long as its request, and no longer. */
  readonly #contexts = new WeakMap<object, ExecutionContext>();

  constructor(
    private readonly runtime: Runtime,
    private readonly planner: ApplicationPlanner,
    private readonly adapterHost: HttpAdapterHost,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const handler = this.#find(context.getClass(), context.getHandler());
    if (!handler) return scopes.run(this.#publish(context), () => next.handle());
    return new Observable((subscriber) => {
      const envelope = this.runtime.openHandler(handler.plan, context);
      const answer = new HandlerAnswer(envelope, subscriber, {
        skip: (outcome) => this.#answerSkip(context, handler, outcome),
        end: (value) => this.#answerEnd(context, handler, value),
      });
      const subscription = scopes.run(envelope, () => next.handle().subscribe(answer));
      return () => {
        subscription.unsubscribe();
        envelope.endStream();
      };
    });
  }

  #find(target: AnyClass, handler: object): GuardedHandler | undefined {
    let byClass = this.#handlers.get(handler);
    if (!byClass) this.#handlers.set(handler, (byClass = new Map()));
    if (!byClass.has(target)) byClass.set(target, this.#look(target, handler));
    return byClass.get(target);
  }

  #look(target: AnyClass, handler: object): GuardedHandler | undefined {
    const record = wrapperOf(handler);
    if (!record) return undefined;
    return {
      plan: this.planner.plan(target, record.method),
      answersByItself: answersByItself(target, record.method),
      renders: renders(target, record.method),
    };
  }

  /**
   * The scope of an unguarded handler. It must not outlive the request, and operators on the stream
   * would cost more than all the rest: so the request itself keeps the context.
   */
  #publish(context: ExecutionContext): HandlerScope {
    const request: unknown = context.getArgByIndex(0);
    if (typeof request !== 'object' || request === null) {
      return { kind: 'handler', context: () => context };
    }
    this.#contexts.set(request, context);
    return scopeOf(new WeakRef(context));
  }

  /** @returns what the stream emits for a skipped call */
  #answerSkip(
    context: ExecutionContext,
    handler: GuardedHandler,
    { metadata, replay }: Skipped,
  ): unknown {
    if (context.getType<string>() !== 'http') return replay?.value;
    const { httpAdapter } = this.adapterHost;
    const response: unknown = context.getArgByIndex(1);
    if (replay?.answer) {
      replayHead(httpAdapter, response, replay.answer);
      return replay.answer.body;
    }
    const body = skippedBody({ ...metadata });
    if (httpAdapter.isHeadersSent(response)) return undefined;
    if (handler.answersByItself) httpAdapter.reply(response, body, SKIPPED_STATUS);
    else httpAdapter.status(response, SKIPPED_STATUS);
    return body;
  }

  /** What is kept of an answer that has been made; nothing where nothing is kept, or can be. */
  #answerEnd(
    context: ExecutionContext,
    { plan, renders: rendered }: GuardedHandler,
    value: unknown,
  ): AnswerEnd | undefined {
    if (!plan.readsAnswers) return undefined;
    if (context.getType<string>() !== 'http') return { value, answer: undefined };
    try {
      const { httpAdapter } = this.adapterHost;
      const head = answerHead(httpAdapter, context.getArgByIndex(1));
      const replacer = jsonReplacerOf(httpAdapter);
      return { value, answer: { ...head, body: value, rendered, replacer } };
    } catch (error) {
      // Thrown on, it would end the process: nobody listens to the end of a stream.
      this.planner.warnOnce(
        `${plan.task}: an answer could not be read (${describeThrown(error)}), so duplicates of such calls get DuplicateError instead of it`,
      );
      return undefined;
    }
  }
}

type Skipped = Outcome & { readonly status: 'skipped' };

/** What the interceptor does for an answer. */
interface Answering {
  /** @returns what the stream emits for a skipped call */
  skip(outcome: Skipped): unknown;
  end(value: unknown): AnswerEnd | undefined;
}

/** A function of its own: closures of one function share its variables, and keep all of them alive. */
function scopeOf(reference: WeakRef<ExecutionContext>): HandlerScope {
  return { kind: 'handler', context: () => reference.deref() };
}

/**
 * Passes a handler's answer on, and the end of it only after the envelope has been closed: the
 * client's next request finds the lease given back. Of a skipped call, whatever inner interceptors
 * made of it is ignored, errors included.
 */
class HandlerAnswer {
  /** What the client is answered with: the last value of the stream. */
  #last: { readonly value: unknown } | undefined;

  constructor(
    private readonly envelope: HandlerEnvelope,
    private readonly subscriber: Subscriber<unknown>,
    private readonly answering: Answering,
  ) {}

  next(value: unknown): void {
    if (this.#skipped()) return;
    this.#last = { value };
    this.subscriber.next(value);
  }

  error(error: unknown): void {
    const skipped = this.#skipped();
    if (skipped) this.#skip(skipped);
    else void andThen(this.envelope.close({ error }), () => this.subscriber.error(error));
  }

  complete(): void {
    const skipped = this.#skipped();
    if (skipped) return this.#skip(skipped);
    const end = this.#last && this.answering.end(this.#last.value);
    void andThen(this.envelope.close(end), () => this.subscriber.complete());
  }

  #skipped(): Skipped | undefined {
    const { outcome } = this.envelope.current;
    return outcome?.status === 'skipped' ? outcome : undefined;
  }

  #skip(outcome: Skipped): void {
    try {
      this.subscriber.next(this.answering.skip(outcome));
      this.subscriber.complete();
    } catch (error) {
      this.subscriber.error(error);
    }
  }
}
