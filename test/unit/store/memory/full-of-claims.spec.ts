import { describe, expect, it } from '@jest/globals';
import {
  type ClaimStep,
  type CompleteStep,
  Deadline,
  type EnterReply,
  type EnterStep,
  isStoreError,
  MemoryStore,
} from 'nestjs-cmdx';
import { ManualClock } from 'nestjs-cmdx/testing';

const MINUTE = 60_000;

describe('a full memory store and its claims', () => {
  it('does it drop one at work, one abandoned or an outcome? No: it is full, and says so', async () => {
    const { store, clock } = open({ maxKeys: 4 });
    enter(store, claim('abandoned', { leaseMs: 1 }), claim('done'), claim('tombstone'));
    store.leave([complete('done', { outcome: 'x' }), complete('tombstone')]);
    await clock.advance('1ms');
    enter(store, claim('at work'));
    const steps: EnterStep[] = [
      claim('new'),
      { kind: 'lease', key: 'lease', token: 't', ttlMs: MINUTE },
      { kind: 'fixed_window', key: 'window', max: 5, windowMs: MINUTE },
    ];
    for (const step of steps) expect(reasonOf(() => enter(store, step))).toBe('full');
    const states = ['at work', 'abandoned', 'done', 'tombstone'].map((key) => {
      const [reply] = enter(store, claim(key, { token: 'other' }));
      return reply?.kind === 'claim' && reply.state;
    });
    expect(states).toEqual(['in_progress', 'abandoned', 'done', 'tombstone']);
  });

  it('is there room again once their time is over?', async () => {
    const { store, clock } = open({ maxKeys: 2 });
    enter(store, claim('at work'), claim('done'));
    store.leave([complete('done', { outcome: 'x' })]);
    await clock.advance('1m');
    expect(enter(store, claim('after the ttl'))).toMatchObject([{ admitted: true }]);
    expect(reasonOf(() => enter(store, claim('too early')))).toBe('full');
    await clock.advance('1m');
    expect(enter(store, claim('after lease and ttl'))).toMatchObject([{ admitted: true }]);
  });

  it('do rate counters make room for claims?', () => {
    const { store } = open({ maxKeys: 3 });
    for (const key of ['a', 'b', 'c']) {
      enter(store, { kind: 'fixed_window', key, max: 5, windowMs: MINUTE });
    }
    const replies = enter(store, claim('1'), claim('2'), claim('3'));
    expect(replies.map(({ admitted }) => admitted)).toEqual([true, true, true]);
  });

  it('does a trip that finds no room give back what it claimed, and leave abandoned what was?', async () => {
    const { store, clock } = open({ maxKeys: 2 });
    enter(store, claim('abandoned', { leaseMs: 1 }));
    await clock.advance('1ms');
    const takeover = claim('abandoned', { token: 'other', onAbandoned: 'rerun' });
    expect(reasonOf(() => enter(store, takeover, claim('taken'), claim('no room')))).toBe('full');
    expect(await store.get('taken')).toBeUndefined();
    expect(enter(store, claim('abandoned', { token: 'third' }))).toMatchObject([
      { state: 'abandoned', run: 1, holder: 'token' },
    ]);
  });

  it('is an abandoned record restored, although what its place lost went to others?', async () => {
    const fingerprint = 'f'.repeat(200);
    const { store, clock } = open({ maxBytes: 1_200 });
    enter(store, claim('abandoned', { leaseMs: 1, fingerprint }));
    await clock.advance('1ms');
    // The new record is shorter, so that another lease fits than before; then there is no room.
    const takeover = claim('abandoned', { token: 'other', onAbandoned: 'rerun' });
    const lease: EnterStep = { kind: 'lease', key: 'x', token: 't'.repeat(250), ttlMs: MINUTE };
    expect(reasonOf(() => enter(store, lease))).toBe('full');
    expect(reasonOf(() => enter(store, takeover, lease, claim('no room', { fingerprint })))).toBe(
      'full',
    );
    expect(await store.get('x')).toBeUndefined();
    expect(await store.get('abandoned')).toContain(fingerprint);
  });
});

describe('an outcome for which there is no room', () => {
  it('is the work done all the same, and never again?', async () => {
    const { store } = open({ maxBytes: 1_000 });
    enter(store, claim('key', { fingerprint: 'one' }));
    const outcome = 'x'.repeat(1_000);
    expect(store.leave([complete('key', { outcome, fingerprint: 'one' })])).toEqual([
      { kind: 'complete', state: 'completed' },
    ]);
    expect(enter(store, claim('key', { token: 'other' }))).toEqual([
      { kind: 'claim', admitted: false, state: 'tombstone', run: 1, holder: 'token' },
    ]);
    expect(enter(store, claim('key', { token: 'other', fingerprint: 'two' }))).toMatchObject([
      { state: 'mismatch' },
    ]);
    expect(await store.remainingTtl('key')).toBe(60);
  });

  it('does it keep what else is left from being given back? No', async () => {
    const { store } = open({ maxKeys: 3 });
    const lease: EnterStep = { kind: 'lease', key: 'lease', token: 'token', ttlMs: MINUTE };
    enter(store, claim('first'), claim('second'), lease);
    await store.forget('first');
    await store.set('in its place', 'x', { ttl: 60 });
    const steps = [
      complete('first', { outcome: 'late' }),
      complete('second', { outcome: 'x' }),
      { kind: 'release', key: 'lease', token: 'token', ttlMs: MINUTE } as const,
    ];
    expect(reasonOf(() => store.leave(steps))).toBe('full');
    expect(await store.get('second')).toBe('d:1:0:token::x');
    expect(await store.get('lease')).toBeUndefined();
  });
});

describe('a text that grows in the place of one that has expired', () => {
  it('is it counted with all its bytes?', async () => {
    const { store, clock } = open({ maxBytes: 2_000 });
    await store.set('key', 'x'.repeat(100), { ttl: '1s' });
    await store.set('gone', 'x'.repeat(100), { ttl: '1s' });
    await store.set('other', 'x'.repeat(500), { ttl: '1h' });
    await clock.advance('2s');
    // Full, if nothing is swept.
    await store.set('key', 'x'.repeat(300), { ttl: '1h' });
    await expect(store.set('more', 'x'.repeat(50), { ttl: '1h' })).rejects.toMatchObject({
      reason: 'full',
    });
  });
});

function open(options: ConstructorParameters<typeof MemoryStore>[0]) {
  const clock = new ManualClock(1_000_000);
  const store = new MemoryStore(options);
  store.useClock(clock);
  return { store, clock };
}

function enter(store: MemoryStore, ...steps: EnterStep[]): EnterReply[] {
  return store.enter(steps, Deadline.after(MINUTE));
}

function claim(key: string, options: Partial<ClaimStep> = {}): ClaimStep {
  const times = { leaseMs: MINUTE, ttlMs: MINUTE };
  return { kind: 'claim', key, token: 'token', ...times, onAbandoned: 'fail', ...options };
}

function complete(key: string, options: Partial<CompleteStep> = {}): CompleteStep {
  return { kind: 'complete', key, token: 'token', run: 1, ttlMs: MINUTE, ...options };
}

function reasonOf(fn: () => unknown): string {
  try {
    fn();
  } catch (error) {
    if (isStoreError(error)) return error.reason;
    throw error;
  }
  throw new Error('expected a StoreError, got none');
}
