import assert from 'node:assert/strict';
import { Deadline } from '../clock/deadline.js';
import { isStoreError } from '../errors/store.error.js';
import type { EnterReply, FixedWindowReply } from '../store/store.js';
import {
  bucketStep,
  leaseStep,
  LONG_MS,
  releaseStep,
  SHORT_MS,
  statement,
  type StoreConformanceCase,
  type StoreHarness,
  windowStep,
} from './conformance-bench.js';
import { circuits } from './conformance-circuits.js';
import { claims } from './conformance-claims.js';

export type { StoreConformanceCase, StoreHarness } from './conformance-bench.js';

/** Any test runner's way to define a test: `it` or `test` of jest, vitest and node:test. */
export type DefineTest = (name: string, run: () => Promise<void>) => unknown;

/**
 * Defines one test per statement of the store contract, with the runner's own `it`.
 *
 * @example storeConformance(it, async () => ({ store, advance, slackMs: 0, dispose }));
 */
export function storeConformance(it: DefineTest, createHarness: () => Promise<StoreHarness>): void {
  for (const { name, run } of storeConformanceCases) it(name, () => run(createHarness));
}

const fixedWindow = [
  statement(
    'fixed window: admits as many starts as max, and counts the denied ones too',
    async (b) => {
      const key = b.key('window');
      const replies: FixedWindowReply[] = [];
      for (let i = 0; i < 5; i += 1) replies.push(await b.window(key, 3));
      assert.deepEqual(
        replies.map(({ admitted, count }) => [admitted, count]),
        [
          [true, 1],
          [true, 2],
          [true, 3],
          [false, 4],
          [false, 5],
        ],
      );
    },
  ),
  statement('fixed window: begins at the first start and is never extended', async (b) => {
    const key = b.key('window');
    b.isRemaining((await b.window(key, 1, SHORT_MS)).remainingMs, SHORT_MS);
    await b.harness.advance(SHORT_MS / 3);
    const denied = await b.window(key, 1, SHORT_MS);
    assert.equal(denied.admitted, false);
    b.isRemaining(denied.remainingMs, SHORT_MS - SHORT_MS / 3);
    await b.harness.advance(denied.remainingMs);
    const next = await b.window(key, 1, SHORT_MS);
    assert.deepEqual([next.admitted, next.count], [true, 1]);
  }),
  statement('fixed window: a max of 0 admits nobody', async (b) => {
    const reply = await b.window(b.key('window'), 0);
    assert.equal(reply.admitted, false);
  }),
  statement(
    'fixed window: keys do not meet, not even long ones that differ at the end',
    async (b) => {
      const long = b.key('k'.repeat(10_000));
      assert.equal((await b.window(`${long}a`, 1)).count, 1);
      assert.equal((await b.window(`${long}b`, 1)).count, 1);
      assert.equal((await b.window(`${long}a`, 1)).count, 2);
    },
  ),
  statement('fixed window: 200 parallel starts are counted exactly', async (b) => {
    const key = b.key('window');
    const replies = await Promise.all(Array.from({ length: 200 }, () => b.window(key, 50)));
    const counts = replies.map(({ count }) => count).toSorted((x, y) => x - y);
    assert.deepEqual(
      counts,
      Array.from({ length: 200 }, (_, i) => i + 1),
    );
    assert.equal(replies.filter(({ admitted }) => admitted).length, 50);
  }),
];

/** Texts that are no whole number as Redis reads one, or no number of starts. */
const NO_NUMBERS = [
  'words',
  '',
  '1.5',
  '1e3',
  '0x10',
  '007',
  '+7',
  ' 7',
  '7 ',
  '-0',
  '5:1',
  '9'.repeat(30),
];
const NO_COUNTS = [...NO_NUMBERS, '-1', '-7'];

/** Texts that are no `level:last_at`. */
const NO_LEVELS = ['words', '', '5', ':', '1:', '-5:7', '1e9:1e9', '1:2:3', `${'9'.repeat(40)}:1`];

/** What somebody else has left under a key of a limit or a lease; of claims and circuits see there. */
const foreign = [
  statement('fixed window: counts on from a whole number, until its time is over', async (b) => {
    for (const start of [0, 1, 4, 1_000]) {
      const key = b.key(`window ${start}`);
      await b.store.set(key, String(start), { ttl: LONG_MS / 1_000 });
      const replies = [await b.window(key, 5, SHORT_MS), await b.window(key, 5, SHORT_MS)];
      assert.deepEqual(
        replies.map(({ admitted, count }) => [admitted, count]),
        [start + 1, start + 2].map((count) => [count <= 5, count]),
      );
      for (const { remainingMs } of replies) b.isRemaining(remainingMs, LONG_MS);
      assert.equal(await b.store.get(key), String(start + 2));
      await b.livesFor(key, LONG_MS);
    }
    const sum = b.key('sum');
    await b.store.incr(sum, { by: 0, ttl: LONG_MS / 1_000 });
    const reply = await b.window(sum, 5, SHORT_MS);
    assert.equal(reply.count, 1);
    b.isRemaining(reply.remainingMs, LONG_MS);
  }),
  statement('fixed window: a text that is no count starts anew', async (b) => {
    for (const text of NO_COUNTS) {
      const key = b.key(`window ${text}`);
      await b.store.set(key, text, { ttl: LONG_MS / 1_000 });
      const reply = await b.window(key, 1, SHORT_MS);
      assert.deepEqual([reply.admitted, reply.count], [true, 1], `the text "${text}"`);
      await b.livesFor(key, SHORT_MS);
    }
  }),
  statement('leaky bucket: goes on from the text of a level', async (b) => {
    const [poured, key] = [b.key('poured'), b.key('bucket')];
    await b.pour(poured, LONG_MS, SHORT_MS);
    const text = (await b.store.get(poured)) ?? '';
    await b.store.set(key, text, { ttl: LONG_MS / 1_000 });
    const denied = await b.pour(key, LONG_MS, LONG_MS);
    assert.equal(denied.admitted, false);
    b.isRemaining(denied.levelUs / 1_000, LONG_MS + SHORT_MS);
    b.isRemaining(denied.retryMs, SHORT_MS);
    assert.equal(await b.store.get(key), text);
    const reply = await b.pour(key, LONG_MS, SHORT_MS);
    assert.equal(reply.admitted, true);
    b.isRemaining(reply.levelUs / 1_000, 2 * SHORT_MS);
    await b.livesFor(key, 2 * SHORT_MS);
  }),
  statement('leaky bucket: a text that is no level is empty', async (b) => {
    for (const text of NO_LEVELS) {
      const key = b.key(`bucket ${text}`);
      await b.store.set(key, text, { ttl: LONG_MS / 1_000 });
      const denied = await b.pour(key, SHORT_MS, LONG_MS);
      assert.deepEqual([denied.admitted, denied.levelUs], [false, LONG_MS * 1_000], text);
      assert.equal(await b.store.get(key), text);
      const reply = await b.pour(key, LONG_MS, SHORT_MS);
      assert.deepEqual([reply.admitted, reply.levelUs], [true, SHORT_MS * 1_000], text);
      await b.livesFor(key, SHORT_MS);
    }
  }),
  statement('lease: whatever stands there is its holder', async (b) => {
    for (const text of ['words', '', '4', '5:1', 'p:1:0:token::', 'c:0:0:0:0||']) {
      const key = b.key(`lease ${text}`);
      await b.store.set(key, text, { ttl: LONG_MS / 1_000 });
      const busy = await b.lease(key, 'token');
      assert.deepEqual([busy.admitted, busy.holder], [false, text]);
      b.isRemaining(busy.remainingMs, LONG_MS);
      assert.equal(await b.release(key, 'token'), false);
      assert.equal(await b.store.get(key), text);
    }
    const key = b.key('counted');
    await b.window(key, 5);
    const busy = await b.lease(key, 'token');
    assert.deepEqual([busy.admitted, busy.holder], [false, '1']);
  }),
];

const leakyBucket = [
  statement(
    'leaky bucket: admits what fits; a denied start tells its level and changes nothing',
    async (b) => {
      const key = b.key('bucket');
      assert.deepEqual(await b.pour(key, LONG_MS, LONG_MS / 2), {
        kind: 'leaky_bucket',
        admitted: true,
        levelUs: (LONG_MS / 2) * 1_000,
        retryMs: 0,
      });
      const before = await b.store.get(key);
      const denied = await b.pour(key, LONG_MS, LONG_MS);
      assert.equal(denied.admitted, false);
      b.isRemaining(denied.levelUs / 1_000, LONG_MS * 1.5);
      b.isRemaining(denied.retryMs, LONG_MS / 2);
      assert.equal(await b.store.get(key), before);
      assert.equal((await b.pour(key, LONG_MS, LONG_MS / 2)).admitted, true);
    },
  ),
  statement('leaky bucket: admits a lone caller who waits as told, and not earlier', async (b) => {
    const key = b.key('bucket');
    await b.pour(key, SHORT_MS, SHORT_MS);
    const denied = await b.pour(key, SHORT_MS, SHORT_MS);
    assert.equal(denied.admitted, false);
    const early = b.harness.slackMs + 1;
    await b.harness.advance(denied.retryMs - early);
    assert.equal((await b.pour(key, SHORT_MS, SHORT_MS)).admitted, false);
    await b.harness.advance(early);
    assert.equal((await b.pour(key, SHORT_MS, SHORT_MS)).admitted, true);
  }),
  statement(
    'leaky bucket: keeps "level:last_at" in microseconds for as long as it drains',
    async (b) => {
      const key = b.key('bucket');
      await b.pour(key, LONG_MS, SHORT_MS);
      const state = await b.store.get(key);
      assert.match(state ?? '', /^\d+:\d+$/);
      assert.equal(state?.split(':')[0], String(SHORT_MS * 1_000));
      b.isRemaining(((await b.store.remainingTtl(key)) ?? 0) * 1_000, SHORT_MS);
      await b.harness.advance(SHORT_MS);
      assert.equal(await b.store.get(key), undefined);
    },
  ),
  statement('leaky bucket: a cost above the capacity never fits', async (b) => {
    const key = b.key('bucket');
    assert.equal((await b.pour(key, SHORT_MS, SHORT_MS + 1)).admitted, false);
    assert.equal(await b.store.get(key), undefined);
  }),
  statement('leaky bucket: 200 parallel starts fill it exactly', async (b) => {
    const key = b.key('bucket');
    const replies = await Promise.all(
      Array.from({ length: 200 }, () => b.pour(key, LONG_MS * 50, LONG_MS)),
    );
    assert.equal(replies.filter(({ admitted }) => admitted).length, 50);
  }),
];

const lease = [
  statement(
    'lease: one holder; the other learns who and for how long; free after the release',
    async (b) => {
      const key = b.key('lease');
      assert.deepEqual(await b.lease(key, 'first'), { kind: 'lease', admitted: true });
      assert.equal(await b.store.get(key), 'first');
      const busy = await b.lease(key, 'second');
      assert.deepEqual([busy.admitted, busy.holder], [false, 'first']);
      b.isRemaining(busy.remainingMs, LONG_MS);
      assert.equal(await b.release(key, 'first'), true);
      assert.equal((await b.lease(key, 'second')).admitted, true);
    },
  ),
  statement('lease: runs out after its ttl', async (b) => {
    const key = b.key('lease');
    await b.lease(key, 'first', SHORT_MS);
    const busy = await b.lease(key, 'second');
    assert.equal(busy.admitted, false);
    await b.harness.advance(busy.remainingMs ?? 0);
    assert.equal((await b.lease(key, 'second')).admitted, true);
  }),
  statement('lease: accepts its own token again and starts the ttl anew', async (b) => {
    const key = b.key('lease');
    await b.lease(key, 'mine', SHORT_MS);
    assert.equal((await b.lease(key, 'mine', LONG_MS)).admitted, true);
    b.isRemaining((await b.lease(key, 'other')).remainingMs, LONG_MS);
  }),
  statement('lease: of 200 parallel callers exactly one gets it', async (b) => {
    const key = b.key('lease');
    const replies = await Promise.all(Array.from({ length: 200 }, (_, i) => b.lease(key, `t${i}`)));
    const winner = replies.findIndex(({ admitted }) => admitted);
    assert.equal(replies.filter(({ admitted }) => admitted).length, 1);
    for (const reply of replies) if (!reply.admitted) assert.equal(reply.holder, `t${winner}`);
  }),
  statement('lease: key and token are any text', async (b) => {
    const key = b.key('a:b %C3 \u00fc \u{1f512} "quoted"\nline');
    const token = 'l5:x\n\u00fc:\u{1f511}';
    assert.equal((await b.lease(key, token)).admitted, true);
    assert.equal((await b.lease(key, 'other')).holder, token);
    assert.equal(await b.release(key, token), true);
  }),
];

const batches = [
  statement('enter: runs the steps in order and answers each', async (b) => {
    const replies = await b.enter(
      windowStep(b.key('window'), 1),
      bucketStep(b.key('bucket'), LONG_MS, SHORT_MS),
      leaseStep(b.key('lease'), 'token'),
    );
    assert.deepEqual(
      replies.map(({ kind, admitted }) => [kind, admitted]),
      [
        ['fixed_window', true],
        ['leaky_bucket', true],
        ['lease', true],
      ],
    );
    assert.deepEqual(await b.enter(), []);
  }),
  statement('enter: stops at the first refusal and leaves the steps behind it alone', async (b) => {
    await b.lease(b.key('lease'), 'other');
    const replies = await b.enter(
      windowStep(b.key('before'), 5),
      leaseStep(b.key('lease'), 'token'),
      windowStep(b.key('behind'), 5),
    );
    assert.deepEqual(
      replies.map(({ admitted }) => admitted),
      [true, false],
    );
    assert.equal((await b.window(b.key('behind'), 5)).count, 1);
  }),
  statement('enter: a refusal gives back the leases of its call, and never a charge', async (b) => {
    await b.lease(b.key('busy'), 'other');
    await b.enter(
      windowStep(b.key('window'), 5),
      leaseStep(b.key('first'), 'token'),
      leaseStep(b.key('second'), 'token'),
      leaseStep(b.key('busy'), 'token'),
    );
    assert.equal((await b.lease(b.key('first'), 'other')).admitted, true);
    assert.equal((await b.lease(b.key('second'), 'other')).admitted, true);
    assert.equal((await b.window(b.key('window'), 5)).count, 2);
  }),
  statement('enter: a refusal keeps the lease that its token held before', async (b) => {
    await b.lease(b.key('mine'), 'token');
    await b.lease(b.key('busy'), 'other');
    await b.enter(leaseStep(b.key('mine'), 'token'), leaseStep(b.key('busy'), 'token'));
    assert.equal((await b.lease(b.key('mine'), 'other')).holder, 'token');
  }),
  statement(
    'enter: after its deadline it rejects with a StoreError and changes nothing',
    async (b) => {
      const steps = [
        windowStep(b.key('window'), 5),
        bucketStep(b.key('bucket'), LONG_MS, SHORT_MS),
        leaseStep(b.key('lease'), 'token'),
      ];
      const late = async (): Promise<EnterReply[]> => b.store.enter(steps, Deadline.after(-1));
      await assert.rejects(late, isStoreError);
      assert.equal((await b.window(b.key('window'), 5)).count, 1);
      assert.equal(await b.store.get(b.key('bucket')), undefined);
      assert.equal((await b.lease(b.key('lease'), 'other')).admitted, true);
    },
  ),
  statement('leave: acts only on what its token still holds, and answers every step', async (b) => {
    await b.lease(b.key('mine'), 'token');
    await b.lease(b.key('theirs'), 'other');
    const replies = await b.leave(
      releaseStep(b.key('nobodys'), 'token'),
      releaseStep(b.key('theirs'), 'token'),
      releaseStep(b.key('mine'), 'token'),
    );
    assert.deepEqual(
      replies,
      [false, false, true].map((released) => ({ kind: 'release', released })),
    );
    assert.equal(await b.release(b.key('mine'), 'token'), false);
    assert.equal((await b.lease(b.key('theirs'), 'third')).holder, 'other');
  }),
  statement('leave: a late one does not take the lease from the next holder', async (b) => {
    const key = b.key('lease');
    await b.lease(key, 'first', SHORT_MS);
    await b.harness.advance(SHORT_MS + 1);
    await b.lease(key, 'second');
    assert.equal(await b.release(key, 'first'), false);
    assert.equal(await b.store.get(key), 'second');
  }),
  statement('close: may be called twice', async (b) => {
    await b.window(b.key('window'), 1);
    await b.store.close();
    await b.store.close();
  }),
];

const primitives = [
  statement('set and get: a text with a ttl, optionally only if absent', async (b) => {
    const key = b.key('text');
    assert.equal(await b.store.get(key), undefined);
    assert.equal(await b.store.remainingTtl(key), undefined);
    assert.equal(await b.store.set(key, 'one', { ttl: SHORT_MS / 1_000 }), true);
    b.isRemaining(((await b.store.remainingTtl(key)) ?? 0) * 1_000, SHORT_MS);
    assert.equal(await b.store.set(key, 'two', { ttl: '1m', ifAbsent: true }), false);
    assert.equal(await b.store.get(key), 'one');
    await b.harness.advance(SHORT_MS);
    assert.equal(await b.store.get(key), undefined);
    assert.equal(await b.store.set(key, 'two', { ttl: '1m', ifAbsent: true }), true);
    assert.equal(await b.store.set(key, 'three', { ttl: '1m' }), true);
    assert.equal(await b.store.get(key), 'three');
  }),
  statement('incr: adds, and sets the ttl only when it creates the key', async (b) => {
    const key = b.key('number');
    assert.equal(await b.store.incr(key, { ttl: SHORT_MS / 1_000 }), 1);
    assert.equal(await b.store.incr(key, { by: 5, ttl: '1h' }), 6);
    assert.equal(await b.store.incr(key, { by: -2, ttl: '1h' }), 4);
    assert.equal(await b.store.get(key), '4');
    b.isRemaining(((await b.store.remainingTtl(key)) ?? 0) * 1_000, SHORT_MS);
    await b.harness.advance(SHORT_MS);
    assert.equal(await b.store.incr(key, { ttl: '1h' }), 1);
  }),
  statement('incr: 200 parallel calls are added exactly', async (b) => {
    const key = b.key('number');
    await Promise.all(Array.from({ length: 200 }, () => b.store.incr(key, { by: 2, ttl: '1m' })));
    assert.equal(await b.store.get(key), '400');
  }),
  statement('incr: a text that is no number is an error and stays', async (b) => {
    for (const text of NO_NUMBERS) {
      const key = b.key(`text ${text}`);
      await b.store.set(key, text, { ttl: '1m' });
      const added = async (): Promise<number> => b.store.incr(key, { ttl: '1m' });
      await assert.rejects(added, isStoreError, `the text "${text}"`);
      assert.equal(await b.store.get(key), text);
    }
    const key = b.key('number');
    await b.store.set(key, '-7', { ttl: '1m' });
    assert.equal(await b.store.incr(key, { ttl: '1h' }), -6);
  }),
  statement('delete: says whether it did, and can ask for a value', async (b) => {
    const key = b.key('text');
    await b.store.set(key, 'one', { ttl: '1m' });
    assert.equal(await b.store.delete(key, { ifEquals: 'two' }), false);
    assert.equal(await b.store.get(key), 'one');
    assert.equal(await b.store.delete(key, { ifEquals: 'one' }), true);
    assert.equal(await b.store.delete(key), false);
  }),
  statement('inspect and forget: what stands there, and away with it', async (b) => {
    const key = b.key('lease');
    assert.equal(await b.store.inspect(key), undefined);
    await b.lease(key, 'token', LONG_MS);
    const report = await b.store.inspect(key);
    assert.equal(report?.value, 'token');
    b.isRemaining((report?.remainingTtl ?? 0) * 1_000, LONG_MS);
    assert.equal(await b.store.forget(key), true);
    assert.equal(await b.store.forget(key), false);
    assert.equal((await b.lease(key, 'other')).admitted, true);
  }),
];

/** Cases that need {@link StoreHarness.plant}; without it there is nothing to break, so they pass. */
const healing = [
  statement('healing: a window without a ttl starts anew', async (b) => {
    const key = b.key('window');
    await b.harness.plant?.(key, '41', undefined);
    const reply = await b.window(key, 1, SHORT_MS);
    assert.deepEqual([reply.admitted, reply.count], [true, 1]);
    await b.livesFor(key, SHORT_MS);
  }),
  statement('healing: a lease without a ttl gets one, so that it runs out', async (b) => {
    if (!b.harness.plant) return;
    const key = b.key('lease');
    await b.harness.plant(key, 'lost', undefined);
    const busy = await b.lease(key, 'token', SHORT_MS);
    assert.deepEqual([busy.admitted, busy.holder], [false, 'lost']);
    b.isRemaining(busy.remainingMs, SHORT_MS);
    await b.harness.advance(SHORT_MS);
    assert.equal((await b.lease(key, 'token', SHORT_MS)).admitted, true);
  }),
];

/** The whole store contract, one statement per case. */
export const storeConformanceCases: readonly StoreConformanceCase[] = [
  ...fixedWindow,
  ...leakyBucket,
  ...lease,
  ...claims,
  ...circuits,
  ...foreign,
  ...batches,
  ...primitives,
  ...healing,
];
