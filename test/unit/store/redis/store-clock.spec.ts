import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { StoreClock } from '../../../../lib/store/redis/store-clock.js';

describe('StoreClock', () => {
  it('does every reply narrow the estimate?', () => {
    const clock = new StoreClock();
    clock.observe(10_000, 0, 100);
    expect(clock.fromLocal(500)).toBe(10_400);
    clock.observe(10_250, 200, 210);
    expect(clock.fromLocal(500)).toBe(10_540);
    clock.observe(10_350, 300, 400);
    expect(clock.fromLocal(500)).toBe(10_540);
  });

  it('is a stepped clock noticed, and the newest reply believed?', () => {
    const clock = new StoreClock();
    expect(clock.observe(10_000, 0, 10)).toBe(false);
    expect(clock.observe(3_610_020, 20, 30)).toBe(true);
    expect(clock.fromLocal(40)).toBe(3_610_030);
    expect(clock.observe(10_050, 40, 50)).toBe(true);
    expect(clock.fromLocal(60)).toBe(10_060);
  });

  it('is the deadline never later than the real one, whatever the trips take?', () => {
    const trip = fc.record({
      pause: fc.double({ min: 0, max: 1_000, noNaN: true }),
      out: fc.double({ min: 0, max: 300, noNaN: true }),
      back: fc.double({ min: 0, max: 300, noNaN: true }),
    });
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 2_000_000_000_000 }),
        fc.array(trip, { minLength: 1, maxLength: 30 }),
        (difference, trips) => {
          const clock = new StoreClock();
          let now = 0;
          for (const { pause, out, back } of trips) {
            const sent = now + pause;
            now = sent + out + back;
            clock.observe(sent + out + difference, sent, now);
          }
          expect(clock.fromLocal(now + 1_000)).toBeLessThanOrEqual(now + 1_000 + difference + 0.01);
        },
      ),
    );
  });
});
