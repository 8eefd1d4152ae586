export { ManualClock } from './manual-clock.js';
export { RecordingTelemetry } from './recording.telemetry.js';
export { withoutPolicies } from '../envelope/binding.js';
export * from './store-conformance.js';
