import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type HalfOpenStorm, PERMITS, startHalfOpenStorm } from '../../support/half-open-storm.js';

const PROCESSES = 4;
const CALLERS = 50;
const REFUSED = PROCESSES * CALLERS - PERMITS;

/** The small version of a part of `npm run soak`. */
describe('four processes call a breaker whose time is over, all at once: who gets in?', () => {
  let storm: HalfOpenStorm;

  beforeAll(async () => {
    storm = await startHalfOpenStorm(PROCESSES);
  }, 60_000);

  afterAll(() => storm.stop());

  it('as many probes as there are permits, and nobody else; their success closes it once', async () => {
    const report = await storm.run(CALLERS, 'none');
    expect(report).toMatchObject({
      bodies: PERMITS,
      during: { inside: PERMITS, circuit_open: REFUSED },
      after: { success: PERMITS, circuit_open: REFUSED },
      transitions: { circuit_half_opened: 1, circuit_closed: 1 },
      state: 'c',
    });
  }, 60_000);

  it('no more of them after the lock was busy and everybody waited for it', async () => {
    const report = await storm.run(CALLERS, 'busy lock');
    expect(report).toMatchObject({
      bodies: PERMITS,
      during: { inside: PERMITS, circuit_open: REFUSED },
      after: { success: PERMITS, circuit_open: REFUSED },
      transitions: { circuit_half_opened: 1, circuit_closed: 1 },
      state: 'c',
    });
  }, 60_000);

  it('no more and no fewer when replies are lost: whose permit it is, is known by its token', async () => {
    const report = await storm.run(CALLERS, 'lost replies');
    expect(report).toMatchObject({
      bodies: PERMITS,
      during: { inside: PERMITS, circuit_open: REFUSED },
      after: { success: PERMITS, circuit_open: REFUSED },
      transitions: { circuit_closed: 1 },
      state: 'c',
      broken: PROCESSES,
    });
  }, 60_000);
});
