import { PERMITS, startHalfOpenStorm, type Trouble } from '../support/half-open-storm.js';
import type { Findings } from './main.js';

const PROCESSES = 4;
const CALLERS = 250;
const TROUBLES: readonly Trouble[] = ['none', 'busy lock', 'lost replies'];

/**
 * Four processes call a breaker whose time is over, from 250 callers each, all at once: exactly as
 * many bodies as there are permits must run, whatever goes wrong.
 */
export async function soakHalfOpen(rounds: number): Promise<Findings> {
  const storm = await startHalfOpenStorm(PROCESSES);
  const violations: string[] = [];
  let [callers, bodies] = [0, 0];
  try {
    for (let round = 0; round < rounds; round++) {
      for (const trouble of TROUBLES) {
        const report = await storm.run(CALLERS, trouble);
        callers += PROCESSES * CALLERS;
        bodies += report.bodies;
        const { inside = 0, circuit_open: refused = 0 } = report.during;
        const sound =
          report.bodies === PERMITS &&
          inside === PERMITS &&
          refused === PROCESSES * CALLERS - PERMITS &&
          report.after['success'] === PERMITS &&
          report.transitions['circuit_closed'] === 1;
        if (!sound) violations.push(`${trouble}, round ${round}: ${JSON.stringify(report)}`);
      }
    }
  } finally {
    await storm.stop();
  }
  return { summary: `${bodies} bodies of ${callers} callers`, violations };
}
