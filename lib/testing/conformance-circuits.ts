import assert from 'node:assert/strict';
import { Deadline } from '../clock/deadline.js';
import { isStoreError } from '../errors/store.error.js';
import { type CircuitRecord, circuitText, newCircuit, parseCircuit } from '../store/circuit.js';
import type { CircuitReply, EnterReply, OutcomeReply, OutcomeStep } from '../store/store.js';
import {
  type Bench,
  circuitStep,
  LAPSE_MS,
  leaseStep,
  LONG_MS,
  outcomeStep,
  SHORT_MS,
  statement,
  TTL_MS,
  unpermitStep,
  windowStep,
} from './conformance-bench.js';

const STALE: OutcomeReply = { kind: 'outcome', state: 'stale' };
const COUNTED: OutcomeReply = { kind: 'outcome', state: 'counted' };
const FAILURE = { success: false } as const;

function counted(times: number): OutcomeReply[] {
  return Array.from({ length: times }, () => COUNTED);
}

/** No permit is needed while it is closed. */
function closed(epoch = 0): CircuitReply {
  return { kind: 'circuit', admitted: true, state: 'closed', epoch };
}

async function recordOf(b: Bench, key: string): Promise<CircuitRecord> {
  const text = await b.store.get(key);
  const record = parseCircuit(text ?? '');
  assert.ok(record, `expected the record of a circuit, got ${text}`);
  return record;
}

/** @param act what must leave the text under the key as it is */
async function changesNothing(b: Bench, key: string, act: () => Promise<void>): Promise<void> {
  const before = await b.store.get(key);
  await act();
  assert.equal(await b.store.get(key), before);
}

/** @returns the epoch of a probe that was let in */
function isProbe(reply: CircuitReply, transition?: 'half_opened'): number {
  const { epoch, ...rest } = reply;
  const expected = { kind: 'circuit', admitted: true, state: 'half_open' };
  assert.deepEqual(rest, transition ? { ...expected, transition } : expected);
  return epoch;
}

async function isRefused(
  b: Bench,
  key: string,
  state: 'open' | 'half_open',
  remainingMs: number,
  permits = 1,
): Promise<void> {
  const { retryMs, epoch, ...rest } = await b.circuit(key, 'somebody', { permits });
  assert.deepEqual(rest, { kind: 'circuit', admitted: false, state });
  assert.ok(epoch > 0, 'expected an epoch');
  b.isRemaining(retryMs, remainingMs);
}

/** The outcomes of calls that a closed breaker let pass, in order: `s`uccess or `f`ailure. */
async function samples(
  b: Bench,
  key: string,
  calls: string,
  options: Partial<OutcomeStep>,
): Promise<OutcomeReply[]> {
  const replies: OutcomeReply[] = [];
  for (const [i, call] of [...calls].entries()) {
    replies.push(await b.outcome(key, `call${i}`, { success: call === 's', ...options }));
  }
  return replies;
}

const counting = [
  statement(
    'circuit: lets everybody pass who knows of no failure, and keeps nothing',
    async (b) => {
      const key = b.key('circuit');
      for (const token of ['first', 'second']) {
        assert.deepEqual(await b.circuit(key, token), closed());
      }
      assert.equal(await b.store.get(key), undefined);
    },
  ),
  statement('circuit: counts calls and failures', async (b) => {
    const key = b.key('circuit');
    const replies = await samples(b, key, 'sfssf', { minimumCalls: 100 });
    assert.deepEqual(replies, counted(5));
    assert.deepEqual(await b.circuit(key, 'next'), closed());
    const { buckets, ...record } = await recordOf(b, key);
    const sum = (name: 'calls' | 'failures'): number =>
      buckets.reduce((all, bucket) => all + bucket[name], 0);
    assert.deepEqual([sum('calls'), sum('failures')], [5, 2]);
    const { buckets: _none, ...fresh } = newCircuit();
    assert.deepEqual(record, fresh);
  }),
  statement('circuit: opens with exactly the rate, never with fewer calls', async (b) => {
    for (const [calls, failureRate, minimumCalls] of [
      ['ssff', 0.5, 4],
      ['ssfff', 0.6, 4],
      ['fff', 1, 3],
      ['sssssssssf', 0.1, 1],
      ['f', 1, 1],
      ['ffff', 0.01, 4],
    ] as const) {
      const key = b.key(`circuit ${calls}`);
      const replies = await samples(b, key, calls, { failureRate, minimumCalls });
      const opened = replies.pop();
      assert.deepEqual(replies, counted(replies.length), calls);
      const { epoch, ...rest } = opened ?? STALE;
      assert.ok(epoch, `expected an epoch of ${calls}`);
      const share = [...calls].filter((call) => call === 'f').length / calls.length;
      assert.deepEqual(
        rest,
        { ...COUNTED, transition: 'opened', failureRate: share, retryMs: LONG_MS },
        calls,
      );
      assert.equal((await recordOf(b, key)).epoch, epoch);
    }
  }),
  statement('circuit: stays closed just below the rate; a success never opens it', async (b) => {
    const key = b.key('circuit');
    const replies = await samples(b, key, 'sssfff', { failureRate: 0.51, minimumCalls: 2 });
    assert.deepEqual(replies, counted(6));
    const other = b.key('other');
    assert.deepEqual(await samples(b, other, 'fs', { minimumCalls: 2 }), [COUNTED, COUNTED]);
    assert.deepEqual(await b.circuit(other, 'next'), closed());
  }),
  statement(
    'circuit: 50 parallel failures open it once; the late ones change nothing',
    async (b) => {
      const key = b.key('circuit');
      const replies = await Promise.all(
        Array.from({ length: 50 }, (_, i) =>
          b.outcome(key, `t${i}`, { ...FAILURE, minimumCalls: 20 }),
        ),
      );
      const opened = replies.filter(({ transition }) => transition);
      assert.deepEqual(
        opened.map(({ transition, failureRate }) => [transition, failureRate]),
        [['opened', 1]],
      );
      assert.equal(replies.filter(({ state }) => state === 'counted').length, 20);
      assert.equal(replies.filter(({ state }) => state === 'stale').length, 30);
    },
  ),
  statement('circuit: calls older than the window do not count, also after idling', async (b) => {
    const key = b.key('circuit');
    const options = { minimumCalls: 5, windowMs: SHORT_MS };
    await samples(b, key, 'ffff', options);
    await b.harness.advance(SHORT_MS);
    assert.deepEqual(await samples(b, key, 'ffff', options), counted(4));
    const within = b.key('within');
    const replies = await samples(b, within, 'fffff', { minimumCalls: 5 });
    assert.equal(replies.at(-1)?.transition, 'opened');
  }),
  statement('circuit: keeps at most ten buckets of its window', async (b) => {
    const key = b.key('circuit');
    // Twice its window, in steps so small that a stall of the process is not the end of all buckets.
    for (let i = 0; i < 25; i += 1) {
      await b.outcome(key, `t${i}`, { windowMs: 400 });
      await b.harness.advance(32);
    }
    const { buckets } = await recordOf(b, key);
    assert.ok(buckets.length > 1 && buckets.length <= 10, `got ${buckets.length} buckets`);
  }),
];

const opening = [
  statement('circuit: open, it refuses for as long as it is, and changes nothing', async (b) => {
    const key = b.key('circuit');
    const epoch = await b.trip(key);
    await changesNothing(b, key, () => isRefused(b, key, 'open', LONG_MS));
    assert.equal((await b.circuit(key, 'somebody')).epoch, epoch);
  }),
  statement('circuit: lets a lone caller in who waits as told, and not earlier', async (b) => {
    const key = b.key('circuit');
    await b.trip(key, { openMs: SHORT_MS });
    const { retryMs = 0, epoch } = await b.circuit(key, 'caller');
    b.isRemaining(retryMs, SHORT_MS);
    const early = b.harness.slackMs + 1;
    await b.harness.advance(retryMs - early);
    assert.equal((await b.circuit(key, 'caller')).admitted, false);
    await b.harness.advance(early);
    const later = isProbe(await b.circuit(key, 'caller'), 'half_opened');
    assert.ok(later > epoch, 'expected a later epoch');
  }),
  statement('circuit: twice as long with each failed probe, half of it random', async (b) => {
    const keys = new Map([0, 0.5].map((jitter) => [jitter, b.key(`circuit ${jitter}`)]));
    const times = new Map<number, number[]>();
    const fail = async (jitter: number, key: string): Promise<number> => {
      const { epoch } = await b.circuit(key, 'probe');
      const options = { ...FAILURE, epoch, openMs: 16, maxOpenMs: 100, jitter };
      const { transition, retryMs = 0 } = await b.outcome(key, 'probe', options);
      assert.equal(transition, 'opened');
      times.set(jitter, [...(times.get(jitter) ?? []), retryMs]);
      return retryMs;
    };
    for (let round = 0; round < 5; round += 1) {
      const waits: number[] = [];
      for (const [jitter, key] of keys) waits.push(await fail(jitter, key));
      await b.harness.advance(Math.max(...waits));
    }
    assert.deepEqual(times.get(0), [16, 16, 32, 50, 50]);
    assert.deepEqual(times.get(0.5), [16, 24, 48, 75, 75]);
  }),
  statement('circuit: is remembered while it is open, and for its ttl after that', async (b) => {
    const key = b.key('circuit');
    await b.trip(key);
    await b.livesFor(key, LONG_MS + TTL_MS);
    const probed = b.key('probed');
    await b.tripped(probed);
    const { epoch } = await b.circuit(probed, 'probe');
    await b.livesFor(probed, TTL_MS);
    const { epoch: after = 0 } = await b.outcome(probed, 'probe', { epoch });
    await b.livesFor(probed, TTL_MS);
    await b.harness.advance(LAPSE_MS);
    await b.outcome(probed, 'call', { epoch: after });
    await b.livesFor(probed, TTL_MS);
    const returned = b.key('returned');
    await b.tripped(returned);
    await b.circuit(returned, 'probe');
    assert.equal(await b.unpermit(returned, 'probe'), true);
    await b.livesFor(returned, TTL_MS);
    const gone = b.key('gone');
    await b.trip(gone, { openMs: 1, ttlMs: 1 });
    await b.harness.advance(LAPSE_MS);
    assert.deepEqual(await b.circuit(gone, 'next'), closed());
  }),
  statement('circuit: one that has never opened is remembered for its window only', async (b) => {
    // The second success is in the bucket of the first, or in the next: alike.
    for (const calls of ['s', 'ss', 'f', 'sf', 'fs']) {
      const key = b.key(`circuit ${calls}`);
      assert.deepEqual(await samples(b, key, calls, { minimumCalls: 9 }), counted(calls.length));
      await b.livesFor(key, LONG_MS);
    }
    const [brief, gone] = [b.key('brief'), b.key('gone')];
    await samples(b, brief, 'sf', { minimumCalls: 9, ttlMs: SHORT_MS });
    await b.livesFor(brief, SHORT_MS);
    await samples(b, gone, 'sf', { minimumCalls: 9, windowMs: SHORT_MS });
    await b.livesFor(gone, SHORT_MS);
    await b.harness.advance(SHORT_MS);
    assert.equal(await b.store.get(gone), undefined);
  }),
];

const probing = [
  statement('circuit: half open, as many probes as permits, one of which opened it', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    const replies = await Promise.all(
      Array.from({ length: 50 }, (_, i) => b.circuit(key, `t${i}`, { permits: 3 })),
    );
    const admitted = replies.filter((reply) => reply.admitted);
    assert.equal(admitted.length, 3);
    assert.equal(admitted.filter(({ transition }) => transition === 'half_opened').length, 1);
    assert.equal(new Set(replies.map(({ epoch }) => epoch)).size, 1);
    for (const { admitted: yes, state, retryMs } of replies) {
      assert.equal(state, 'half_open');
      if (yes) assert.equal(retryMs, undefined);
      else b.isRemaining(retryMs, LONG_MS);
    }
    assert.equal((await recordOf(b, key)).permits.length, 3);
  }),
  statement('circuit: as many successes as permits close it, not fewer', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    const { epoch } = await b.circuit(key, 'one', { permits: 2 });
    isProbe(await b.circuit(key, 'two', { permits: 2 }));
    assert.deepEqual(await b.outcome(key, 'one', { epoch, permits: 2 }), COUNTED);
    // One has come back well and one is out: nobody else is needed.
    await isRefused(b, key, 'half_open', LONG_MS, 2);
    const { epoch: after = 0, ...rest } = await b.outcome(key, 'two', { epoch, permits: 2 });
    assert.deepEqual(rest, { ...COUNTED, transition: 'closed' });
    assert.ok(after > epoch, 'expected a later epoch');
    assert.deepEqual(await b.circuit(key, 'next'), closed(after));
  }),
  statement('circuit: closed again, it has forgotten what it had counted', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    const { epoch } = await b.circuit(key, 'probe');
    const { epoch: after = 0 } = await b.outcome(key, 'probe', { epoch });
    assert.deepEqual(await recordOf(b, key), {
      ...newCircuit(),
      epoch: after,
      openUntil: (await recordOf(b, key)).openUntil,
    });
    const failed = { ...FAILURE, epoch: after, minimumCalls: 2, jitter: 0.9 };
    assert.deepEqual(await b.outcome(key, 'a', failed), COUNTED);
    // It opens for as long as at first.
    assert.equal((await b.outcome(key, 'b', failed)).retryMs, LONG_MS);
  }),
  statement('circuit: one failed probe opens it again, whatever the others do', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    const { epoch } = await b.circuit(key, 'one', { permits: 3 });
    for (const token of ['two', 'three']) await b.circuit(key, token, { permits: 3 });
    await b.outcome(key, 'one', { epoch, permits: 3 });
    const { epoch: after = 0, ...rest } = await b.outcome(key, 'two', { ...FAILURE, epoch });
    assert.deepEqual(rest, {
      ...COUNTED,
      transition: 'opened',
      failureRate: 1,
      retryMs: LONG_MS,
    });
    assert.ok(after > epoch, 'expected a later epoch');
    await changesNothing(b, key, async () => {
      assert.deepEqual(await b.outcome(key, 'three', { epoch }), STALE);
      await isRefused(b, key, 'open', LONG_MS);
    });
  }),
  statement('circuit: its own token again is the same permit', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    isProbe(await b.circuit(key, 'mine', { permits: 2 }), 'half_opened');
    await changesNothing(b, key, async () => {
      isProbe(await b.circuit(key, 'mine', { permits: 2 }));
    });
    isProbe(await b.circuit(key, 'other', { permits: 2 }));
    await isRefused(b, key, 'half_open', LONG_MS, 2);
  }),
  statement('circuit: a permit given back goes to the next caller, once', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    const epoch = isProbe(await b.circuit(key, 'one'), 'half_opened');
    assert.equal(await b.unpermit(key, 'two'), false);
    assert.equal(await b.unpermit(key, 'one'), true);
    assert.equal(await b.unpermit(key, 'one'), false);
    assert.equal(isProbe(await b.circuit(key, 'two')), epoch);
    await isRefused(b, key, 'half_open', LONG_MS);
    assert.deepEqual(await b.outcome(key, 'one', { epoch }), STALE);
    assert.equal((await b.outcome(key, 'two', { epoch })).transition, 'closed');
  }),
  statement('circuit: nothing is given back to one that is closed or open', async (b) => {
    const [none, shut, open] = [b.key('none'), b.key('closed'), b.key('open')];
    await b.outcome(shut, 'first');
    await b.trip(open);
    for (const key of [none, shut, open]) {
      await changesNothing(b, key, async () => {
        assert.equal(await b.unpermit(key, 'first'), false);
      });
    }
  }),
  statement('circuit: a permit that lapsed is nobody’s, and goes to the next caller', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    const epoch = isProbe(await b.circuit(key, 'lost', { probeMs: 1 }), 'half_opened');
    await b.harness.advance(LAPSE_MS);
    await changesNothing(b, key, async () => {
      for (const success of [true, false]) {
        assert.deepEqual(await b.outcome(key, 'lost', { epoch, success }), STALE);
      }
      assert.equal(await b.unpermit(key, 'lost'), false);
    });
    assert.equal(isProbe(await b.circuit(key, 'next')), epoch);
    await changesNothing(b, key, async () => {
      assert.deepEqual(await b.outcome(key, 'lost', { ...FAILURE, epoch }), STALE);
    });
    await isRefused(b, key, 'half_open', LONG_MS);
    assert.equal((await b.outcome(key, 'next', { epoch })).transition, 'closed');
  }),
  statement('circuit: a refusal keeps nothing alive, also of who had a permit once', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    await b.circuit(key, 'one', { permits: 2 });
    await b.circuit(key, 'two', { permits: 2, probeMs: 1 });
    await b.harness.advance(LAPSE_MS);
    const refused = await b.circuit(key, 'two', { ttlMs: 2 * TTL_MS });
    assert.deepEqual([refused.admitted, refused.state], [false, 'half_open']);
    await b.livesFor(key, TTL_MS - LAPSE_MS);
  }),
  statement('circuit: tells when the first permit lapses, exactly', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    await b.circuit(key, 'late', { permits: 2 });
    await b.circuit(key, 'lost', { permits: 2, probeMs: SHORT_MS });
    const { retryMs = 0 } = await b.circuit(key, 'caller', { permits: 2 });
    b.isRemaining(retryMs, SHORT_MS);
    const early = b.harness.slackMs + 1;
    await b.harness.advance(retryMs - early);
    assert.equal((await b.circuit(key, 'caller', { permits: 2 })).admitted, false);
    await b.harness.advance(early);
    isProbe(await b.circuit(key, 'caller', { permits: 2 }));
  }),
  statement('circuit: half open, only who holds a permit is heard', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    const { epoch } = await b.circuit(key, 'probe');
    await changesNothing(b, key, async () => {
      for (const success of [true, false]) {
        assert.deepEqual(await b.outcome(key, 'stranger', { epoch, success }), STALE);
      }
    });
  }),
  statement('circuit: with fewer permits than it has successes, one more decides', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    const { epoch } = await b.circuit(key, 'one', { permits: 3 });
    await b.circuit(key, 'two', { permits: 3 });
    for (const token of ['one', 'two']) await b.outcome(key, token, { epoch, permits: 3 });
    isProbe(await b.circuit(key, 'three'));
    await isRefused(b, key, 'half_open', LONG_MS);
    assert.equal((await b.outcome(key, 'three', { epoch })).transition, 'closed');
  }),
];

const epochs = [
  statement('circuit: outcomes of an older epoch change nothing, whatever the state', async (b) => {
    const key = b.key('circuit');
    const old: number[] = [0];
    const isDeaf = (): Promise<void> =>
      changesNothing(b, key, async () => {
        for (const epoch of old) {
          for (const success of [true, false]) {
            assert.deepEqual(await b.outcome(key, 'probe', { epoch, success }), STALE);
          }
        }
      });
    const opened = await b.trip(key, { openMs: 1 });
    await isDeaf();
    await b.harness.advance(LAPSE_MS);
    const { epoch: probed } = await b.circuit(key, 'probe');
    old.push(opened);
    await isDeaf();
    const { epoch: shut = 0 } = await b.outcome(key, 'probe', { epoch: probed });
    old.push(probed);
    await isDeaf();
    assert.deepEqual(await b.outcome(key, 'call', { epoch: shut }), COUNTED);
    // Nor do they join the calls that are counted now.
    await isDeaf();
  }),
  statement('circuit: an epoch never comes again, also after it was forgotten', async (b) => {
    const key = b.key('circuit');
    const first = await b.trip(key);
    assert.equal(await b.store.forget(key), true);
    await b.harness.advance(LAPSE_MS);
    assert.deepEqual(await b.circuit(key, 'next'), closed());
    assert.deepEqual(await b.outcome(key, 'late', { ...FAILURE, epoch: first }), STALE);
    assert.equal(await b.store.get(key), undefined);
    assert.ok((await b.trip(key)) > first, 'expected a later epoch');
  }),
];

const together = [
  statement('enter: a refusal gives a probe’s permit back', async (b) => {
    const [key, busy] = [b.key('circuit'), b.key('busy')];
    await b.tripped(key);
    await b.lease(busy, 'other');
    const replies = await b.enter(
      windowStep(b.key('window'), 5),
      circuitStep(key, 'token'),
      leaseStep(b.key('lease'), 'token'),
      leaseStep(busy, 'token'),
    );
    assert.deepEqual(
      replies.map(({ kind, admitted }) => [kind, admitted]),
      [
        ['fixed_window', true],
        ['circuit', true],
        ['lease', true],
        ['lease', false],
      ],
    );
    await b.soon(
      async () => (await recordOf(b, key)).permits.length === 0,
      'the permit to be given back',
    );
    isProbe(await b.circuit(key, 'next'));
  }),
  statement('enter: a refusal keeps the permit that its token held before', async (b) => {
    const [key, busy] = [b.key('circuit'), b.key('busy')];
    await b.tripped(key);
    await b.circuit(key, 'token');
    await b.lease(busy, 'other');
    await changesNothing(b, key, async () => {
      await b.enter(circuitStep(key, 'token'), leaseStep(busy, 'token'));
    });
    await isRefused(b, key, 'half_open', LONG_MS);
  }),
  statement('enter: an open circuit leaves alone what is behind it, and gives back', async (b) => {
    const key = b.key('circuit');
    await b.trip(key);
    const replies = await b.enter(
      windowStep(b.key('window'), 5),
      leaseStep(b.key('before'), 'token'),
      circuitStep(key, 'token'),
      leaseStep(b.key('behind'), 'token'),
    );
    assert.deepEqual(
      replies.map(({ admitted }) => admitted),
      [true, true, false],
    );
    for (const name of ['before', 'behind']) {
      assert.equal((await b.lease(b.key(name), 'other')).admitted, true);
    }
    assert.equal((await b.window(b.key('window'), 5)).count, 2);
  }),
  statement('enter: after its deadline it takes no permit', async (b) => {
    const key = b.key('circuit');
    await b.tripped(key);
    await changesNothing(b, key, async () => {
      const late = async (): Promise<EnterReply[]> =>
        b.store.enter([circuitStep(key, 'token')], Deadline.after(-1));
      await assert.rejects(late, isStoreError);
    });
  }),
  statement('leave: outcomes and permits among other steps, each answered', async (b) => {
    const [called, probed] = [b.key('called'), b.key('probed')];
    await b.tripped(probed);
    await b.circuit(probed, 'token');
    await b.lease(b.key('lease'), 'token');
    const replies = await b.leave(
      outcomeStep(called, 'token'),
      { kind: 'release', key: b.key('lease'), token: 'token', ttlMs: LONG_MS },
      unpermitStep(probed, 'token'),
      outcomeStep(probed, 'token', { epoch: 1 }),
    );
    assert.deepEqual(replies, [
      COUNTED,
      { kind: 'release', released: true },
      { kind: 'unpermit', returned: true },
      STALE,
    ]);
  }),
  statement('circuit: key and token are any text', async (b) => {
    const key = b.key('a:b|c;d,e %C3 \u00fc \u{1f512} "quoted"\nline');
    const token = 'o5:x|\n\u00fc:\u{1f511}';
    await b.tripped(key);
    const epoch = isProbe(await b.circuit(key, token), 'half_opened');
    assert.deepEqual(
      (await recordOf(b, key)).permits.map((permit) => permit.token),
      [token],
    );
    isProbe(await b.circuit(key, token));
    await isRefused(b, key, 'half_open', LONG_MS);
    assert.equal((await b.outcome(key, token, { epoch })).transition, 'closed');
  }),
  statement('circuit: its record is the text that says all of it', async (b) => {
    const key = b.key('circuit');
    await b.trip(key, { openMs: 1 });
    const before = await recordOf(b, key);
    await b.harness.advance(LAPSE_MS);
    const { epoch } = await b.circuit(key, 'probe', { permits: 2 });
    const report = await b.store.inspect(key);
    const record = parseCircuit(report?.value ?? '');
    assert.ok(report && record, `expected the record of a circuit, got ${report?.value}`);
    const { permits, ...rest } = record;
    assert.deepEqual(rest, {
      state: 'half_open',
      epoch,
      openUntil: before.openUntil,
      opens: 1,
      successes: 0,
      buckets: [],
    });
    assert.deepEqual(
      permits.map(({ token }) => token),
      ['probe'],
    );
    b.isRemaining((permits[0]?.deadline ?? 0) - report.at, LONG_MS);
    assert.equal(circuitText(record), report.value);
  }),
];

/** Texts that look like a record, and are none. */
const NO_RECORDS = [
  'words',
  '',
  'x:1:2:3:4||',
  'c:1:2:3:4',
  'c:1:2:3||',
  'c:-1:2:3:4||',
  'c:1:2:3:4|1,2;|',
  'c:1:2:3:4|,;|',
  'c:1:2:3:4|1,2,3|',
  'c:1:2:3:4|1,2,3;',
  'c:1:2:3:4|1,2,3;||',
  'c:1:2:3:4||token;',
  'o:1:2:3:4|1,2;|',
  'h:1:2:3:4||token;',
  'h:1:2:3:4||token,5',
  'p:1:5:token::',
];

const foreign = [
  statement('circuit: what an operator has set rules, and counts nothing', async (b) => {
    for (const state of ['forced_open', 'forced_closed'] as const) {
      const key = b.key(state);
      const text = circuitText({ ...newCircuit(), state, epoch: 7 });
      await b.store.set(key, text, { ttl: LONG_MS / 1_000 });
      const admitted = state === 'forced_closed';
      assert.deepEqual(await b.circuit(key, 'token'), {
        kind: 'circuit',
        admitted,
        state,
        epoch: 7,
      });
      for (const success of [true, false]) {
        assert.deepEqual(await b.outcome(key, 'token', { epoch: 7, success }), STALE);
      }
      assert.equal(await b.unpermit(key, 'token'), false);
      assert.equal(await b.store.get(key), text);
      await b.livesFor(key, LONG_MS);
    }
  }),
  statement(
    'circuit: a closed one lets everybody pass, whatever else its record says',
    async (b) => {
      const permits = [{ token: 'other', deadline: Number.MAX_SAFE_INTEGER }];
      for (const facts of [{ permits }, { opens: 7, successes: 7, openUntil: 7 }]) {
        const key = b.key(Object.keys(facts).join());
        const text = circuitText({ ...newCircuit(), epoch: 4, ...facts });
        await b.store.set(key, text, { ttl: LONG_MS / 1_000 });
        assert.deepEqual(await b.circuit(key, 'token'), closed(4));
        assert.equal(await b.store.get(key), text);
        assert.deepEqual(await b.outcome(key, 'token', { epoch: 4 }), COUNTED);
      }
    },
  ),
  statement('circuit: a key that holds something else is an error, and stays', async (b) => {
    for (const [i, text] of NO_RECORDS.entries()) {
      const [key, lock] = [b.key(`text ${i}`), b.key(`lease ${i}`)];
      await b.store.set(key, text, { ttl: '1m' });
      const entered = async (): Promise<EnterReply[]> =>
        b.enter(leaseStep(lock, 'token'), circuitStep(key, 'token'));
      await assert.rejects(entered, isStoreError, `the text "${text}"`);
      await b.soon(async () => (await b.store.get(lock)) === undefined, 'the lease to be free');
      assert.deepEqual(await b.leave(outcomeStep(key, 'token'), unpermitStep(key, 'token')), [
        STALE,
        { kind: 'unpermit', returned: false },
      ]);
      assert.equal(await b.store.get(key), text);
    }
  }),
];

/** Cases that need `plant`; without it there is nothing to break, so they pass. */
const healing = [
  statement('healing: a circuit without a ttl gets one from whoever asks it', async (b) => {
    if (!b.harness.plant) return;
    const at = (await b.trip(b.key('now'))) + LONG_MS;
    const records: readonly (readonly [Partial<CircuitRecord>, number])[] = [
      [{ state: 'open', openUntil: at }, LONG_MS + TTL_MS],
      [{ state: 'half_open', permits: [{ token: 'lost', deadline: at }] }, TTL_MS],
      [{ state: 'forced_open' }, TTL_MS],
      [{ state: 'forced_closed' }, TTL_MS],
    ];
    for (const [facts, lifetimeMs] of records) {
      const key = b.key(String(facts.state));
      const text = circuitText({ ...newCircuit(), epoch: 4, ...facts });
      await b.harness.plant(key, text, undefined);
      const { state, epoch } = await b.circuit(key, 'other');
      assert.deepEqual([state, epoch], [facts.state, 4]);
      assert.equal(await b.store.get(key), text);
      await b.livesFor(key, lifetimeMs);
    }
  }),
  statement('healing: a circuit without a ttl outlives what is told to it', async (b) => {
    if (!b.harness.plant) return;
    const deadline = (await b.trip(b.key('now'))) + LONG_MS;
    const permits = ['one', 'two'].map((token) => ({ token, deadline }));
    const half = circuitText({ ...newCircuit(), state: 'half_open', epoch: 4, permits });
    const called = b.key('called');
    await b.harness.plant(called, circuitText(newCircuit()), undefined);
    await b.outcome(called, 'token');
    await b.livesFor(called, LONG_MS);
    const shut = b.key('shut');
    await b.harness.plant(shut, circuitText({ ...newCircuit(), epoch: 4 }), undefined);
    await b.outcome(shut, 'token', { epoch: 4 });
    await b.livesFor(shut, TTL_MS);
    const returned = b.key('returned');
    await b.harness.plant(returned, half, undefined);
    assert.equal(await b.unpermit(returned, 'one'), true);
    await b.harness.advance(LAPSE_MS);
    assert.equal((await recordOf(b, returned)).permits.length, 1);
    assert.ok(Number.isFinite(await b.store.remainingTtl(returned)), 'expected a ttl');
  }),
];

/** What the contract says of circuit breakers, one statement per case. */
export const circuits = [
  ...counting,
  ...opening,
  ...probing,
  ...epochs,
  ...together,
  ...foreign,
  ...healing,
];
