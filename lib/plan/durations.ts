import { looksLikeMilliseconds } from '../clock/duration.js';

/** Options that look like milliseconds written where seconds are read. */
export function suspiciousDurations(options: object, site: string): readonly string[] {
  return (
    [
      'ttl',
      'per',
      'wait',
      'lease',
      'window',
      'openFor',
      'maxOpenFor',
      'probeTimeout',
      'delay',
      'maxDelay',
      'storeTimeout',
      'shutdownTimeout',
    ] as const
  ).flatMap((name) => {
    const value = (options as Record<string, unknown>)[name];
    return looksLikeMilliseconds(value)
      ? [`${site} option "${name}": ${value} seconds; did you mean '${value / 1_000}s'?`]
      : [];
  });
}
