import {
  TELEMETRY_EVENTS,
  type TelemetryEvent,
  type TelemetryEventName,
} from '../telemetry/events.js';
import type { Telemetry, TelemetryListener } from '../telemetry/telemetry.js';

/** Keeps every event, for tests: `forRoot({ telemetry: [recording] })`. */
export class RecordingTelemetry implements TelemetryListener {
  readonly events: TelemetryEvent[] = [];

  listen(telemetry: Telemetry): void {
    for (const name of TELEMETRY_EVENTS) {
      telemetry.subscribe(name, (event) => void this.events.push(event));
    }
  }

  /** The names of the events, in order. */
  get names(): readonly TelemetryEventName[] {
    return this.events.map((event) => event.name);
  }

  /** The events of one name. */
  of<N extends TelemetryEventName>(name: N): readonly TelemetryEvent<N>[] {
    return this.events.filter((event): event is TelemetryEvent<N> => event.name === name);
  }

  clear(): void {
    this.events.length = 0;
  }
}
