import { Logger } from '@nestjs/common';
import { DefinitionError, show } from '../errors/definition.error.js';
import { stackOf } from '../errors/reading.js';
import { once } from '../process-wide.js';
import {
  TELEMETRY_EVENTS,
  type TelemetryEvent,
  type TelemetryEventName,
  type TelemetryPayloads,
  type TelemetrySource,
  type TelemetrySubscriber,
} from './events.js';

/** Something that listens to many events, given to `forRoot({ telemetry: [...] })`. */
export interface TelemetryListener {
  /** Subscribes to what it wants to hear. Called once, before the first event. */
  listen(telemetry: Telemetry): void;
}

class TelemetryHub {
  readonly #subscribers = new Map<TelemetryEventName, readonly TelemetrySubscriber[]>();
  readonly #failed = new WeakSet<TelemetrySubscriber>();
  readonly #logger = new Logger('Cmdx');

  /**
   * Hears every event of one name.
   *
   * @param subscriber called in the order of subscription; what it throws or rejects with is logged
   *   once and changes nothing
   * @returns the function that ends the subscription
   * @throws DefinitionError when there is no such event
   */
  subscribe<N extends TelemetryEventName>(name: N, subscriber: TelemetrySubscriber<N>): () => void {
    if (!TELEMETRY_EVENTS.includes(name)) {
      throw new DefinitionError(
        `Telemetry.subscribe: expected one of ${TELEMETRY_EVENTS.join(', ')}; got ${show(name)}`,
      );
    }
    if (typeof subscriber !== 'function') {
      throw new DefinitionError(
        `Telemetry.subscribe("${name}"): expected a function, got ${show(subscriber)}`,
      );
    }
    const entry: TelemetrySubscriber = (event) => subscriber(event as TelemetryEvent<N>);
    this.#subscribers.set(name, [...(this.#subscribers.get(name) ?? []), entry]);
    return () => {
      const left = (this.#subscribers.get(name) ?? []).filter((other) => other !== entry);
      if (left.length > 0) this.#subscribers.set(name, left);
      else this.#subscribers.delete(name);
    };
  }

  /** Whether anybody would hear this event: ask before building its payload. */
  hears(name: TelemetryEventName): boolean {
    return this.#subscribers.has(name);
  }

  /** @internal Tells every subscriber of `name`. */
  emit<N extends TelemetryEventName>(
    name: N,
    source: TelemetrySource,
    payload: TelemetryPayloads[N],
  ): void {
    const subscribers = this.#subscribers.get(name);
    if (!subscribers) return;
    const event = Object.freeze({
      name,
      cid: source.cid,
      xid: source.xid,
      tid: source.tid,
      root: source.root,
      task: source.task,
      timestamp: new Date(),
      payload: Object.freeze(payload),
    });
    for (const subscriber of subscribers) this.#tell(subscriber, event as TelemetryEvent);
  }

  #tell(subscriber: TelemetrySubscriber, event: TelemetryEvent): void {
    try {
      const answer = subscriber(event);
      if (isThenable(answer))
        answer.then(undefined, (error) => this.#logOnce(subscriber, event, error));
    } catch (error) {
      this.#logOnce(subscriber, event, error);
    }
  }

  #logOnce(subscriber: TelemetrySubscriber, event: TelemetryEvent, error: unknown): void {
    if (this.#failed.has(subscriber)) return;
    this.#failed.add(subscriber);
    this.#logger.error(
      `A subscriber of "${event.name}" failed; further failures of it are not logged.`,
      stackOf(error),
    );
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === 'function';
}

/** The events of one application. Injectable; one class per process, whichever copy is loaded. */
export const Telemetry: typeof TelemetryHub = once('Telemetry', () => TelemetryHub);
export interface Telemetry extends TelemetryHub {}
