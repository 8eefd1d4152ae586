import { DefinitionError, show } from '../errors/definition.error.js';
import { type AnyClass, taskName } from '../metadata/method-name.js';
import { addSubscription } from '../metadata/policy-records.js';
import {
  TELEMETRY_EVENTS,
  type TelemetryEvent,
  type TelemetryEventName,
} from '../telemetry/events.js';

/**
 * Subscribes a method of a provider to an event, from the start of the application to its end.
 *
 * @throws DefinitionError when there is no such event; at boot when the provider is not a singleton
 */
export function OnTelemetry<N extends TelemetryEventName>(
  event: N,
): <M extends (event: TelemetryEvent<N>) => unknown>(
  target: object,
  method: string | symbol,
  descriptor: TypedPropertyDescriptor<M>,
) => void {
  return (target, method) => {
    const owner = target.constructor as AnyClass;
    if (!TELEMETRY_EVENTS.includes(event)) {
      throw new DefinitionError(
        `${taskName(owner, method)}: @OnTelemetry: expected one of ${TELEMETRY_EVENTS.join(', ')}; got ${show(event)}`,
      );
    }
    addSubscription(owner, event, method);
  };
}
