export { ManualClock } from './manual-clock.js';
export { RecordingTelemetry } from './recording.telemetry.js';
export { raceWith } from './race-with.js';
export { withoutPolicies } from '../envelope/binding.js';
export { storeConformance, storeConformanceCases } from './store-conformance.js';
export type { DefineTest, StoreConformanceCase, StoreHarness } from './store-conformance.js';
