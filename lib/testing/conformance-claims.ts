import assert from 'node:assert/strict';
import { Deadline } from '../clock/deadline.js';
import { isStoreError } from '../errors/store.error.js';
import { type ClaimRecord, claimText, parseClaim } from '../store/claim.js';
import type { ClaimReply, CompleteStep, EnterReply } from '../store/store.js';
import {
  type Bench,
  claimStep,
  completeStep,
  holdOf,
  LAPSE_MS,
  leaseStep,
  LONG_MS,
  statement,
  TTL_MS,
  unclaimStep,
} from './conformance-bench.js';

/** A far future, for records that are written past the store. */
const NEVER_MS = 9_999_999_999_999;

function claimed(run: number): ClaimReply {
  return { kind: 'claim', admitted: true, state: 'claimed', run };
}

function refused(
  state: ClaimReply['state'],
  holder: string,
  facts: Partial<ClaimReply> = {},
): ClaimReply {
  return { kind: 'claim', admitted: false, state, run: 1, holder, ...facts };
}

async function isInProgress(b: Bench, key: string, holder: string, run = 1): Promise<void> {
  const { remainingMs, ...reply } = await b.claim(key, 'somebody');
  assert.deepEqual(reply, refused('in_progress', holder, { run }));
  b.isRemaining(remainingMs, LONG_MS);
}

async function recordOf(b: Bench, key: string): Promise<ClaimRecord> {
  const text = await b.store.get(key);
  const record = parseClaim(text ?? '');
  assert.ok(record, `expected the record of a claim, got ${text}`);
  return record;
}

/** @param act what must leave the text under the key as it is */
async function changesNothing(b: Bench, key: string, act: () => Promise<void>): Promise<void> {
  const before = await b.store.get(key);
  await act();
  assert.equal(await b.store.get(key), before);
}

/** Finishes the work of a fresh key. */
async function finish(
  b: Bench,
  key: string,
  token: string,
  options: Partial<CompleteStep> = {},
): Promise<void> {
  const { fingerprint } = options;
  assert.deepEqual(await b.claim(key, token, { fingerprint }), claimed(1));
  assert.equal(await b.complete(key, token, options), 'completed');
}

const claiming = [
  statement('claim: the first gets it, the next learns whose it is and for how long', async (b) => {
    const key = b.key('claim');
    assert.deepEqual(await b.claim(key, 'first'), claimed(1));
    await changesNothing(b, key, () => isInProgress(b, key, 'first'));
  }),
  statement('claim: of 200 parallel callers exactly one gets it', async (b) => {
    const key = b.key('claim');
    const replies = await Promise.all(Array.from({ length: 200 }, (_, i) => b.claim(key, `t${i}`)));
    const winner = replies.findIndex(({ admitted }) => admitted);
    const others = replies.filter(({ state }) => state === 'in_progress');
    assert.equal(others.length, 199);
    for (const { holder } of others) assert.equal(holder, `t${winner}`);
  }),
  statement('claim: accepts its own token again and starts the lease anew', async (b) => {
    const key = b.key('claim');
    await b.claim(key, 'mine', { leaseMs: LONG_MS / 2 });
    assert.deepEqual(await b.claim(key, 'mine'), claimed(1));
    await isInProgress(b, key, 'mine');
    const lapsed = b.key('lapsed');
    await b.abandon(lapsed, 'mine');
    assert.deepEqual(await b.claim(lapsed, 'mine'), claimed(1));
    await isInProgress(b, lapsed, 'mine');
  }),
  statement('claim: another fingerprint is told first, also while in flight', async (b) => {
    const key = b.key('claim');
    await b.claim(key, 'first', { fingerprint: 'one' });
    await changesNothing(b, key, async () => {
      const reply = await b.claim(key, 'second', { fingerprint: 'two' });
      assert.deepEqual(reply, refused('mismatch', 'first'));
      assert.equal((await b.claim(key, 'second', { fingerprint: 'one' })).state, 'in_progress');
    });
  }),
  statement('claim: another fingerprint is told first, also of an abandoned one', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'first', { fingerprint: 'one' });
    await changesNothing(b, key, async () => {
      for (const onAbandoned of ['fail', 'rerun'] as const) {
        const reply = await b.claim(key, 'second', { fingerprint: 'two', onAbandoned });
        assert.deepEqual(reply, refused('mismatch', 'first'));
      }
    });
  }),
  statement('claim: a fingerprint outlives completion, with and without an outcome', async (b) => {
    for (const outcome of ['outcome', undefined]) {
      const key = b.key(`claim ${outcome}`);
      await finish(b, key, 'first', { fingerprint: 'one', outcome });
      assert.deepEqual(
        await b.claim(key, 'second', { fingerprint: 'two' }),
        refused('mismatch', 'first'),
      );
      const same = await b.claim(key, 'second', { fingerprint: 'one' });
      assert.equal(same.state, outcome ? 'done' : 'tombstone');
    }
  }),
  statement('claim: fingerprints differ only where both sides have one', async (b) => {
    const [marked, plain] = [b.key('marked'), b.key('plain')];
    await b.claim(marked, 'first', { fingerprint: 'one' });
    await isInProgress(b, marked, 'first');
    await b.claim(plain, 'first');
    assert.equal((await b.claim(plain, 'second', { fingerprint: 'two' })).state, 'in_progress');
  }),
  statement('claim: an abandoned one is told as such, and stays', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'first');
    await changesNothing(b, key, async () => {
      assert.deepEqual(await b.claim(key, 'second'), refused('abandoned', 'first'));
      assert.deepEqual(await b.claim(key, 'third'), refused('abandoned', 'first'));
    });
  }),
  statement('claim: an abandoned one is taken over as the next run, again and again', async (b) => {
    const key = b.key('claim');
    for (let run = 1; run <= 12; run += 1) {
      const reply = await b.claim(key, `t${run}`, { leaseMs: 1, onAbandoned: 'rerun' });
      assert.deepEqual(reply, claimed(run));
      await b.harness.advance(LAPSE_MS);
    }
    assert.deepEqual(await b.claim(key, 'last', { onAbandoned: 'rerun' }), claimed(13));
    await isInProgress(b, key, 'last', 13);
  }),
  statement('claim: of 50 parallel callers exactly one takes an abandoned one over', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'first');
    const replies = await Promise.all(
      Array.from({ length: 50 }, (_, i) => b.claim(key, `t${i}`, { onAbandoned: 'rerun' })),
    );
    assert.deepEqual(
      replies.filter(({ admitted }) => admitted).map(({ run }) => run),
      [2],
    );
    assert.equal(replies.filter(({ state }) => state === 'in_progress').length, 49);
  }),
  statement('claim: the new owner brings its own fingerprint', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'first');
    await b.claim(key, 'second', { fingerprint: 'two', onAbandoned: 'rerun' });
    assert.equal((await b.claim(key, 'third', { fingerprint: 'three' })).state, 'mismatch');
  }),
  statement('claim: lives for lease and ttl together, done for the ttl', async (b) => {
    const key = b.key('claim');
    await b.claim(key, 'mine');
    await b.livesFor(key, LONG_MS + TTL_MS);
    await b.renew(key, 'mine', { leaseMs: 2 * LONG_MS });
    await b.livesFor(key, 2 * LONG_MS + TTL_MS);
    await b.complete(key, 'mine', { outcome: 'outcome' });
    await b.livesFor(key, TTL_MS);
    const gone = b.key('gone');
    await b.abandon(gone, 'first', { ttlMs: 1 });
    assert.equal(await b.store.get(gone), undefined);
    assert.deepEqual(await b.claim(gone, 'second'), claimed(1));
    await b.complete(gone, 'second', { outcome: 'outcome', ttlMs: 1 });
    await b.harness.advance(LAPSE_MS);
    assert.deepEqual(await b.claim(gone, 'third'), claimed(1));
  }),
  statement(
    'claim: its record is the text "state:run:leaseUntil:token:fingerprint:outcome"',
    async (b) => {
      const key = b.key('claim');
      await b.claim(key, 'mine', { fingerprint: 'digest' });
      const report = await b.store.inspect(key);
      const record = parseClaim(report?.value ?? '');
      assert.ok(report && record, `expected the record of a claim, got ${report?.value}`);
      const { leaseUntil, ...rest } = record;
      b.isRemaining(leaseUntil - report.at, LONG_MS);
      assert.deepEqual(rest, {
        state: 'pending',
        run: 1,
        token: 'mine',
        fingerprint: 'digest',
        outcome: '',
      });
      await b.complete(key, 'mine', { fingerprint: 'digest', outcome: 'a:b' });
      assert.equal(await b.store.get(key), 'd:1:0:mine:digest:a:b');
    },
  ),
];

const ending = [
  statement('complete: a duplicate is answered with the outcome, in the same reply', async (b) => {
    const key = b.key('claim');
    await finish(b, key, 'first', { outcome: '{"id":1}' });
    await changesNothing(b, key, async () => {
      for (const onAbandoned of ['fail', 'rerun'] as const) {
        const reply = await b.claim(key, 'second', { onAbandoned });
        assert.deepEqual(reply, refused('done', 'first', { outcome: '{"id":1}' }));
      }
    });
  }),
  statement('complete: without an outcome it is done all the same', async (b) => {
    const key = b.key('claim');
    await finish(b, key, 'first');
    assert.deepEqual(await b.claim(key, 'second'), refused('tombstone', 'first'));
  }),
  statement('complete: an empty outcome is an outcome', async (b) => {
    const key = b.key('claim');
    await finish(b, key, 'first', { outcome: '' });
    assert.deepEqual(await b.claim(key, 'second'), refused('done', 'first', { outcome: '' }));
  }),
  statement('complete: an outcome is any text', async (b) => {
    const texts = [
      ':::',
      'd:1:0:t:f:nested',
      'line\r\nline\n',
      'a\u0000b\u0000',
      '%d%s{}[]"\\',
      '\u00fc \u{1f512} \u6f22\u5b57',
      'x'.repeat(64 * 1_024),
    ];
    for (const [i, outcome] of texts.entries()) {
      const key = b.key(`text ${i}`);
      await finish(b, key, 'first', { outcome });
      assert.equal((await b.claim(key, 'second')).outcome, outcome);
      assert.equal((await recordOf(b, key)).outcome, outcome);
    }
  }),
  statement('complete: sent again it is completed again, and nothing changes', async (b) => {
    const key = b.key('claim');
    await finish(b, key, 'mine', { outcome: 'outcome' });
    await changesNothing(b, key, async () => {
      assert.equal(await b.complete(key, 'mine', { outcome: 'outcome' }), 'completed');
      assert.equal(await b.complete(key, 'mine'), 'completed');
    });
    const own = await b.claim(key, 'mine');
    assert.deepEqual(own, refused('done', 'mine', { outcome: 'outcome' }));
  }),
  statement('complete: also after the lease ran out, if nobody took over', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'first');
    assert.equal((await b.claim(key, 'second')).state, 'abandoned');
    assert.equal(await b.complete(key, 'first', { outcome: 'late' }), 'completed');
    assert.equal((await b.claim(key, 'second')).outcome, 'late');
  }),
  statement('complete: where the record is gone it is made again, with its run', async (b) => {
    const key = b.key('claim');
    await b.claim(key, 'first');
    await b.store.forget(key);
    const options = { run: 3, outcome: 'late', fingerprint: 'one' };
    assert.equal(await b.complete(key, 'first', options), 'late');
    await b.livesFor(key, TTL_MS);
    const reply = await b.claim(key, 'second');
    assert.deepEqual(reply, refused('done', 'first', { run: 3, outcome: 'late' }));
    assert.equal((await b.claim(key, 'second', { fingerprint: 'two' })).state, 'mismatch');
  }),
  statement('complete: a new owner stays untouched, at work and finished', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'first');
    await b.claim(key, 'second', { onAbandoned: 'rerun' });
    const stale = async (): Promise<void> => {
      assert.equal(await b.complete(key, 'first', { outcome: 'old' }), 'stale');
      assert.equal(await b.unclaim(key, 'first'), 'stale');
      assert.equal(await b.renew(key, 'first'), false);
    };
    await changesNothing(b, key, stale);
    await b.livesFor(key, LONG_MS + TTL_MS);
    await b.complete(key, 'second', { run: 2, outcome: 'new' });
    await changesNothing(b, key, stale);
    await b.livesFor(key, TTL_MS);
    const reply = await b.claim(key, 'third');
    assert.deepEqual(reply, refused('done', 'second', { run: 2, outcome: 'new' }));
  }),
  statement('unclaim: the next call is the first again', async (b) => {
    const key = b.key('claim');
    await b.claim(key, 'first', { fingerprint: 'one' });
    assert.equal(await b.unclaim(key, 'first'), 'dropped');
    assert.equal(await b.store.get(key), undefined);
    assert.equal(await b.unclaim(key, 'first'), 'absent');
    assert.deepEqual(await b.claim(key, 'second', { fingerprint: 'two' }), claimed(1));
  }),
  statement('unclaim: also after the lease ran out, if nobody took over', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'first');
    assert.equal(await b.unclaim(key, 'first'), 'dropped');
    assert.deepEqual(await b.claim(key, 'second'), claimed(1));
  }),
  statement('unclaim: never what is finished, nor what is held by another', async (b) => {
    const [done, theirs] = [b.key('done'), b.key('theirs')];
    await finish(b, done, 'mine', { outcome: 'outcome' });
    await changesNothing(b, done, async () => {
      assert.equal(await b.unclaim(done, 'mine'), 'stale');
    });
    await b.claim(theirs, 'other');
    await changesNothing(b, theirs, async () => {
      assert.equal(await b.unclaim(theirs, 'mine'), 'stale');
    });
  }),
  statement('leave: ends leases and claims in one call, and answers each', async (b) => {
    await b.enter(
      leaseStep(b.key('lease'), 'token'),
      claimStep(b.key('kept'), 'token'),
      claimStep(b.key('dropped'), 'token'),
    );
    const replies = await b.leave(
      { kind: 'release', key: b.key('lease'), token: 'token', ttlMs: LONG_MS },
      completeStep(b.key('kept'), 'token', { outcome: 'outcome' }),
      unclaimStep(b.key('dropped'), 'token'),
      completeStep(b.key('gone'), 'token'),
    );
    assert.deepEqual(replies, [
      { kind: 'release', released: true },
      { kind: 'complete', state: 'completed' },
      { kind: 'unclaim', state: 'dropped' },
      { kind: 'complete', state: 'late' },
    ]);
  }),
];

const renewing = [
  statement('renew: starts the lease anew and keeps run and fingerprint', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'first');
    await b.claim(key, 'mine', { onAbandoned: 'rerun', leaseMs: LONG_MS / 2, fingerprint: 'one' });
    assert.equal(await b.renew(key, 'mine'), true);
    await b.livesFor(key, LONG_MS + TTL_MS);
    await isInProgress(b, key, 'mine', 2);
    assert.equal((await b.claim(key, 'other', { fingerprint: 'two' })).state, 'mismatch');
  }),
  statement('renew: also a lease that ran out, if nobody took over', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'mine');
    assert.equal((await b.claim(key, 'other')).state, 'abandoned');
    assert.equal(await b.renew(key, 'mine'), true);
    await isInProgress(b, key, 'mine');
  }),
  statement('renew: says for each hold, in order, whether it is still owned', async (b) => {
    const [mine, theirs, done] = [b.key('mine'), b.key('theirs'), b.key('done')];
    await b.claim(mine, 'token');
    await b.claim(theirs, 'other');
    await finish(b, done, 'token');
    const kept = await b.store.renew([
      holdOf(b.key('nobodys'), 'token'),
      holdOf(mine, 'token'),
      holdOf(theirs, 'token'),
      holdOf(done, 'token'),
      holdOf(mine, 'another run'),
    ]);
    assert.deepEqual([...kept], [false, true, false, false, false]);
    assert.equal(await b.store.get(b.key('nobodys')), undefined);
    assert.equal((await recordOf(b, done)).state, 'tombstone');
    assert.deepEqual([...(await b.store.renew([]))], []);
  }),
  statement('inspect: tells the time by which a lease is counted', async (b) => {
    const key = b.key('claim');
    await b.claim(key, 'mine', { leaseMs: LAPSE_MS });
    const before = await b.store.inspect(key);
    await b.harness.advance(LAPSE_MS);
    const after = await b.store.inspect(key);
    assert.ok(before && after);
    const { leaseUntil } = await recordOf(b, key);
    b.isRemaining(leaseUntil - before.at, LAPSE_MS);
    assert.ok(Number.isInteger(after.at) && after.at >= leaseUntil);
    assert.equal((await b.claim(key, 'other')).state, 'abandoned');
    b.isRemaining(after.remainingTtl * 1_000, TTL_MS);
  }),
];

const together = [
  statement('enter: a refused claim gives the lease of its call back', async (b) => {
    const [key, lock] = [b.key('claim'), b.key('lease')];
    await finish(b, key, 'first', { outcome: 'outcome' });
    const replies = await b.enter(leaseStep(lock, 'second'), claimStep(key, 'second'));
    assert.deepEqual(replies, [
      { kind: 'lease', admitted: true },
      refused('done', 'first', { outcome: 'outcome' }),
    ]);
    assert.equal(await b.store.get(lock), undefined);
  }),
  statement('enter: a refusal gives back the claims of its call', async (b) => {
    await b.lease(b.key('busy'), 'other');
    const replies = await b.enter(
      claimStep(b.key('first'), 'token'),
      claimStep(b.key('second'), 'token'),
      leaseStep(b.key('busy'), 'token'),
    );
    assert.deepEqual(
      replies.map(({ admitted }) => admitted),
      [true, true, false],
    );
    for (const name of ['first', 'second']) {
      assert.deepEqual(await b.claim(b.key(name), 'other'), claimed(1));
    }
  }),
  statement('enter: a refusal leaves an abandoned record as it was found', async (b) => {
    const key = b.key('claim');
    await b.abandon(key, 'first', { fingerprint: 'one' });
    await b.lease(b.key('busy'), 'other');
    await changesNothing(b, key, async () => {
      const replies = await b.enter(
        claimStep(key, 'second', { onAbandoned: 'rerun' }),
        leaseStep(b.key('busy'), 'second'),
      );
      assert.deepEqual(replies[0], claimed(2));
      assert.equal(replies[1]?.admitted, false);
    });
    assert.deepEqual(await b.claim(key, 'third'), refused('abandoned', 'first'));
    assert.equal(await b.complete(key, 'first', { outcome: 'outcome' }), 'completed');
  }),
  statement('enter: a refusal keeps the claim that its token held before', async (b) => {
    const key = b.key('claim');
    await b.claim(key, 'token');
    await b.lease(b.key('busy'), 'other');
    await b.enter(claimStep(key, 'token'), leaseStep(b.key('busy'), 'token'));
    await isInProgress(b, key, 'token');
  }),
  statement('enter: after its deadline it claims nothing and takes nothing over', async (b) => {
    const [fresh, abandoned] = [b.key('fresh'), b.key('abandoned')];
    await b.abandon(abandoned, 'first');
    const steps = [
      claimStep(fresh, 'token'),
      claimStep(abandoned, 'token', { onAbandoned: 'rerun' }),
    ];
    const late = async (): Promise<EnterReply[]> => b.store.enter(steps, Deadline.after(-1));
    await changesNothing(b, abandoned, () => assert.rejects(late, isStoreError));
    assert.equal(await b.store.get(fresh), undefined);
  }),
  statement('claim: what is no record of a claim is an error that names no key', async (b) => {
    const key = b.key('words');
    for (const text of ['words', '', 'p:1:2', 'x:1:0:t::', 'p:one:0:t::']) {
      await b.store.set(key, text, { ttl: '1m' });
      await assert.rejects(
        async () => b.enter(leaseStep(b.key('lease'), 'token'), claimStep(key, 'token')),
        (error) => isStoreError(error) && !error.message.includes(key),
      );
      assert.equal(await b.store.get(key), text);
    }
    await b.soon(async () => (await b.lease(b.key('lease'), 'other')).admitted, 'a free lease');
  }),
  statement('leave and renew: what is no record of a claim is nobody\u2019s', async (b) => {
    const [words, mine] = [b.key('words'), b.key('mine')];
    await b.store.set(words, 'words', { ttl: '1m' });
    await b.claim(mine, 'token');
    assert.deepEqual(await b.store.renew([holdOf(words, 'token'), holdOf(mine, 'token')]), [
      false,
      true,
    ]);
    const replies = await b.leave(
      completeStep(words, 'token', { outcome: 'outcome' }),
      unclaimStep(words, 'token'),
      completeStep(mine, 'token', { outcome: 'outcome' }),
    );
    assert.deepEqual(
      replies.map((reply) => 'state' in reply && reply.state),
      ['stale', 'stale', 'completed'],
    );
    assert.equal(await b.store.get(words), 'words');
  }),
];

/** Cases that need {@link StoreHarness.plant}; without it there is nothing to break, so they pass. */
const healing = [
  statement('healing: the record of a claim without a ttl gets one', async (b) => {
    if (!b.harness.plant) return;
    const base = { run: 4, token: 'lost', fingerprint: '', outcome: '' };
    const records = [
      ['in_progress', { ...base, state: 'pending', leaseUntil: NEVER_MS }, LONG_MS + TTL_MS],
      ['abandoned', { ...base, state: 'pending', leaseUntil: 1 }, LONG_MS + TTL_MS],
      ['done', { ...base, state: 'done', leaseUntil: 0 }, TTL_MS],
      ['tombstone', { ...base, state: 'tombstone', leaseUntil: 0 }, TTL_MS],
    ] as const;
    for (const [state, record, ttlMs] of records) {
      const key = b.key(state);
      await b.harness.plant(key, claimText(record), undefined);
      const reply = await b.claim(key, 'other');
      assert.deepEqual([reply.state, reply.run, reply.holder], [state, 4, 'lost']);
      await b.livesFor(key, ttlMs);
    }
  }),
  statement(
    'healing: a claim without a ttl gets one from whoever owns it or takes it',
    async (b) => {
      if (!b.harness.plant) return;
      const record = { state: 'pending', run: 1, fingerprint: '', outcome: '' } as const;
      const text = claimText({ ...record, leaseUntil: 1, token: 'lost' });
      const renewed = b.key('renewed');
      await b.harness.plant(renewed, text, undefined);
      assert.equal(await b.renew(renewed, 'lost'), true);
      await b.livesFor(renewed, LONG_MS + TTL_MS);
      const completed = b.key('completed');
      await b.harness.plant(completed, text, undefined);
      assert.equal(await b.complete(completed, 'lost', { outcome: 'outcome' }), 'completed');
      await b.livesFor(completed, TTL_MS);
      const taken = b.key('taken');
      await b.harness.plant(taken, text, undefined);
      assert.deepEqual(await b.claim(taken, 'other', { onAbandoned: 'rerun' }), claimed(2));
      await b.livesFor(taken, LONG_MS + TTL_MS);
    },
  ),
  statement('healing: an abandoned record without a ttl outlives a refused takeover', async (b) => {
    if (!b.harness.plant) return;
    const key = b.key('claim');
    await b.harness.plant(key, 'p:1:1:lost::', undefined);
    await b.lease(b.key('busy'), 'other');
    await b.enter(
      claimStep(key, 'token', { onAbandoned: 'rerun' }),
      leaseStep(b.key('busy'), 'token'),
    );
    assert.equal(await b.store.get(key), 'p:1:1:lost::');
    assert.ok(Number.isFinite(await b.store.remainingTtl(key)), 'expected a ttl');
  }),
];

/** What the contract says of claims, one statement per case. */
export const claims = [...claiming, ...ending, ...renewing, ...together, ...healing];
