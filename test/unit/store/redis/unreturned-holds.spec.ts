import { describe, expect, it } from '@jest/globals';
import { UnreturnedHolds } from '../../../../lib/store/redis/unreturned-holds.js';
import type { ReleaseStep } from '../../../../lib/store/store.js';
import { until, waitFor } from '../../../support/time.js';

function release(key: string, ttlMs = 60_000): ReleaseStep {
  return { kind: 'release', key, token: 'token', ttlMs };
}

describe('UnreturnedHolds', () => {
  it('is what fails tried again, and what worked forgotten?', async () => {
    const sent: string[] = [];
    let works = false;
    const holds = new UnreturnedHolds(async (steps) => {
      if (!works) throw new Error('away');
      sent.push(...steps.map(({ key }) => key));
    });
    holds.add([release('a'), release('b')]);
    await holds.drain();
    expect(holds.size).toBe(2);
    works = true;
    await until(() => holds.size === 0, 'the second try');
    expect(sent).toEqual(['a', 'b']);
  });

  it('are at most 1,000 kept, the newest?', async () => {
    const sent: string[] = [];
    const holds = new UnreturnedHolds(async (steps) => sent.push(...steps.map(({ key }) => key)));
    holds.add(Array.from({ length: 1_001 }, (_, i) => release(`key${i}`)));
    expect(holds.size).toBe(1_000);
    await holds.drain();
    expect(sent).toHaveLength(1_000);
    expect(sent).not.toContain('key0');
  });

  it('does work that is done make room for leases of which nothing came?', async () => {
    const sent: string[] = [];
    const holds = new UnreturnedHolds(async (steps) => sent.push(...steps.map(({ key }) => key)));
    holds.stop();
    holds.add([
      { kind: 'complete', key: 'paid', token: 't', run: 1, ttlMs: 60_000, outcome: 'v1' },
    ]);
    for (let i = 0; i < 1_500; i++) holds.add([release(`key${i}`)]);
    expect(holds.size).toBe(1_000);
    await holds.drain();
    expect(sent[0]).toBe('paid');
    expect(sent).not.toContain('key500');
    expect(sent).toContain('key501');
  });

  it('do a hundred that are never taken stand before the others?', async () => {
    const sent: string[] = [];
    // As Redis does it: what can be done is done, and the call fails for the rest.
    const holds = new UnreturnedHolds(async (steps) => {
      sent.push(...steps.map(({ key }) => key).filter((key) => !key.startsWith('refused')));
      if (steps.some(({ key }) => key.startsWith('refused'))) throw new Error('no room');
    });
    holds.stop();
    holds.add(Array.from({ length: 100 }, (_, i) => release(`refused${i}`)));
    holds.add([release('welcome')]);
    await holds.drain();
    expect(sent).toEqual([]);
    await holds.drain();
    expect(sent).toEqual(['welcome']);
  });

  it('is a hold dropped once its own ttl has passed, and when its token wants it again?', async () => {
    const sent: string[] = [];
    const holds = new UnreturnedHolds(async (steps) => sent.push(...steps.map(({ key }) => key)));
    holds.stop();
    holds.add([release('short', 20), release('again'), release('long')]);
    holds.forget({ key: 'again', token: 'token' });
    await waitFor(20);
    await holds.drain();
    expect(sent).toEqual(['long']);
  });
});
