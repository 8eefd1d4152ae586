import type { CallHandler, ExecutionContext, NestInterceptor } from '@nestjs/common';
import type { HttpAdapterHost } from '@nestjs/core';
import { Observable, type Subscriber } from 'rxjs';
import { andThen } from './awaitable.js';
import type { ApplicationPlanner } from './boot/planner.js';
import type { HandlerEnvelope } from './envelope/handler-envelope.js';
import type { Plan } from './envelope/plan.js';
import type { Runtime } from './envelope/runtime.js';
import { type HandlerScope, scopes } from './envelope/scope.js';
import type { AnyClass } from './metadata/method-name.js';
import { answersByItself } from './metadata/nest-metadata.js';
import { wrapperOf } from './metadata/wrappers.js';
import { SKIPPED_STATUS, skippedBody } from './transport/http.js';

/** What the interceptor knows of a guarded handler. */
interface GuardedHandler {
  readonly plan: Plan;
  readonly answersByItself: boolean;
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
      const answer = new HandlerAnswer(envelope, subscriber, (metadata) =>
        this.#answerSkip(context, handler, metadata),
      );
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
    metadata: Readonly<Record<string, unknown>>,
  ): unknown {
    if (context.getType<string>() !== 'http') return undefined;
    const { httpAdapter } = this.adapterHost;
    const response: unknown = context.getArgByIndex(1);
    const body = skippedBody(metadata);
    if (httpAdapter.isHeadersSent(response)) return undefined;
    if (handler.answersByItself) httpAdapter.reply(response, body, SKIPPED_STATUS);
    else httpAdapter.status(response, SKIPPED_STATUS);
    return body;
  }
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
  constructor(
    private readonly envelope: HandlerEnvelope,
    private readonly subscriber: Subscriber<unknown>,
    private readonly answerSkip: (metadata: Readonly<Record<string, unknown>>) => unknown,
  ) {}

  next(value: unknown): void {
    if (!this.#skipped()) this.subscriber.next(value);
  }

  error(error: unknown): void {
    if (this.#skipped()) this.#skip();
    else void andThen(this.envelope.close({ error }), () => this.subscriber.error(error));
  }

  complete(): void {
    if (this.#skipped()) this.#skip();
    else void andThen(this.envelope.close(), () => this.subscriber.complete());
  }

  #skipped(): Readonly<Record<string, unknown>> | undefined {
    const { outcome } = this.envelope.current;
    return outcome?.status === 'skipped' ? { ...outcome.metadata } : undefined;
  }

  #skip(): void {
    try {
      this.subscriber.next(this.answerSkip(this.#skipped() ?? {}));
      this.subscriber.complete();
    } catch (error) {
      this.subscriber.error(error);
    }
  }
}
