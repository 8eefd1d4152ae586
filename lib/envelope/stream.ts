import {
  from,
  isObservable,
  Observable,
  type Subscriber,
  type Subscription,
  takeWhile,
} from 'rxjs';
import { andThen, type Awaitable } from '../awaitable.js';
import { begin, conclude, outcomeOf } from './envelope.js';
import { enterRings } from './entrance.js';
import type { Ending } from '../policies/policy.js';
import { endingOf, UNUSED } from './endings.js';
import type { Outcome } from './result.js';
import type { Run } from './run.js';
import type { Refusal } from './verdict.js';
import { scopes } from './scope.js';
import { unsubscribed } from './signals.js';

/**
 * Guards a method that returns an Observable: each subscription is one invocation, and what it
 * holds is held until the stream completes, fails or is unsubscribed. A skip emits one `undefined`
 * and completes, because Nest cannot answer with an empty stream.
 *
 * @param open makes the run of a subscription
 * @param body calls the bare method
 */
export function performStream(
  open: () => Awaitable<Run>,
  body: (run: Run) => unknown,
): Observable<unknown> {
  return new Observable((subscriber) => {
    const stream = new GuardedStream(subscriber);
    const opened = open();
    if (opened instanceof Promise) {
      opened.then(
        (run) => stream.start(run, body),
        (error) => subscriber.error(error),
      );
    } else {
      stream.start(opened, body);
    }
    return () => stream.stop();
  });
}

const COMPLETED: Ending = Object.freeze({ kind: 'returned', value: undefined, handled: false });
/** The subscriber left: how the work would have ended is not known. */
const LEFT: Ending = UNUSED;

class GuardedStream {
  #run: Run | undefined;
  #inner: Subscription | undefined;
  #lastValue: unknown;
  #begun = false;
  #ending = false;

  constructor(private readonly subscriber: Subscriber<unknown>) {}

  start(run: Run, body: (run: Run) => unknown): void {
    if (this.subscriber.closed) return;
    this.#run = run;
    scopes.run(run, () => {
      try {
        begin(run);
        const entered = enterRings(run);
        if (entered instanceof Promise) {
          entered.then(
            (refusal) => this.#go(run, refusal, body),
            (error) => this.#fail(run, error),
          );
        } else {
          this.#go(run, entered, body);
        }
      } catch (error) {
        this.#fail(run, error);
      }
    });
  }

  /** The subscriber left: everything held is given back, in the background. */
  stop(): void {
    const run = this.#run;
    if (!run) return;
    if (!this.#begun) run.abandoned = true;
    // One that leaves while the body is still being subscribed to is seen to when that returns.
    if (!this.#inner) return;
    this.#inner.unsubscribe();
    this.#end(run, this.#success(), LEFT, () => undefined);
  }

  #go(run: Run, refusal: Refusal | undefined, body: (run: Run) => unknown): void {
    if (this.subscriber.closed) return this.#fail(run, unsubscribed());
    if (refusal) return this.#refuse(run, refusal);
    this.#begun = true;
    try {
      run.startWork();
      const returned = body(run);
      const source = isObservable(returned) ? returned : from(Promise.resolve(returned));
      // A source that emits before it lets go of us must hear that its subscriber is satisfied.
      this.#inner = source.pipe(takeWhile(() => !this.subscriber.closed)).subscribe({
        next: (value) => {
          this.#lastValue = value;
          this.subscriber.next(value);
        },
        error: (error: unknown) => this.#fail(run, error),
        complete: () =>
          this.#end(run, this.#success(), this.subscriber.closed ? LEFT : COMPLETED, () =>
            this.subscriber.complete(),
          ),
      });
      if (this.subscriber.closed) this.stop();
    } catch (error) {
      this.#fail(run, error);
    }
  }

  #refuse(run: Run, { metadata, skip, error }: Refusal): void {
    if (skip) {
      this.#end(run, { status: 'skipped', reason: metadata.code, metadata }, UNUSED, () =>
        this.#skip(),
      );
      return;
    }
    const thrown = error();
    const outcome: Outcome = { status: 'failed', error: thrown, reason: thrown.message, metadata };
    this.#end(run, outcome, UNUSED, () => this.subscriber.error(thrown));
  }

  #fail(run: Run, error: unknown): void {
    const outcome = outcomeOf(error);
    this.#end(run, outcome, endingOf(run, error), () =>
      outcome.status === 'skipped' ? this.#skip() : this.subscriber.error(error),
    );
  }

  #skip(): void {
    this.subscriber.next(undefined);
    this.subscriber.complete();
  }

  #success(): Outcome {
    return { status: 'success', value: this.#lastValue };
  }

  #end(run: Run, outcome: Outcome, ending: Ending, tell: () => void): void {
    if (this.#ending) return;
    this.#ending = true;
    void andThen(conclude(run, outcome, ending), tell);
  }
}
