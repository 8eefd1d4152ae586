import type {
  CircuitReply,
  CircuitStep,
  OutcomeReply,
  OutcomeStep,
  UnpermitReply,
  UnpermitStep,
} from './store.js';

/** Into so many buckets of time a breaker's window is cut: so coarse it forgets. */
const BUCKETS = 10;

const LETTERS = {
  closed: 'c',
  open: 'o',
  half_open: 'h',
  forced_open: 'O',
  forced_closed: 'C',
} as const;

export type CircuitState = keyof typeof LETTERS;

/** The calls that ended within one bucket of time. */
interface Bucket {
  /** The number of the bucket: time divided by its length. */
  slot: number;
  calls: number;
  failures: number;
}

/** A probe that was let in and has not come back. */
interface Permit {
  readonly token: string;
  /** After that it counts as lost, in whole milliseconds of the store's time. */
  readonly deadline: number;
}

/** What a store knows about one breaker. */
export interface CircuitRecord {
  state: CircuitState;
  /** Grows with each change of state; an outcome of an older one is dropped. */
  epoch: number;
  openUntil: number;
  /** How often it has opened without having closed since. */
  opens: number;
  /** Probes that came back well since it is half open. */
  successes: number;
  permits: Permit[];
  buckets: Bucket[];
}

export function newCircuit(): CircuitRecord {
  return {
    state: 'closed',
    epoch: 0,
    openUntil: 0,
    opens: 0,
    successes: 0,
    permits: [],
    buckets: [],
  };
}

/**
 * The one text of a record: `state:epoch:openUntil:opens:successes|buckets|permits`, a bucket being
 * `slot,calls,failures` and a permit `token,deadline`, each followed by a `;`.
 */
export function circuitText(record: CircuitRecord): string {
  const { state, epoch, openUntil, opens, successes, buckets, permits } = record;
  const past = buckets.map(({ slot, calls, failures }) => `${slot},${calls},${failures};`).join('');
  const out = permits.map(({ token, deadline }) => `${token},${deadline};`).join('');
  return `${LETTERS[state]}:${epoch}:${openUntil}:${opens}:${successes}|${past}|${out}`;
}

const RECORD = /^([cohOC]):(\d+):(\d+):(\d+):(\d+)\|((?:\d+,\d+,\d+;)*)\|((?:[^,;]+,\d+;)*)$/;

/** @returns `undefined` for a text that is no record of a breaker */
export function parseCircuit(text: string): CircuitRecord | undefined {
  const match = RECORD.exec(text);
  if (!match) return undefined;
  const [, letter, epoch, openUntil, opens, successes, buckets = '', permits = ''] = match;
  return {
    state: circuitStateOf(letter ?? ''),
    epoch: Number(epoch),
    openUntil: Number(openUntil),
    opens: Number(opens),
    successes: Number(successes),
    buckets: fields(buckets).map(([slot, calls, failures]) => ({
      slot: Number(slot),
      calls: Number(calls),
      failures: Number(failures),
    })),
    permits: fields(permits).map(([token = '', deadline]) => ({
      token,
      deadline: Number(deadline),
    })),
  };
}

/** The state that a letter of the text stands for. */
export function circuitStateOf(letter: string): CircuitState {
  const states = Object.keys(LETTERS) as CircuitState[];
  return states.find((state) => LETTERS[state] === letter) ?? 'closed';
}

function fields(text: string): string[][] {
  return text
    .split(';')
    .slice(0, -1)
    .map((each) => each.split(','));
}

/**
 * Asks a breaker whether a call may begin. Changes the record.
 *
 * @param now the store's time in whole milliseconds
 */
export function enterCircuit(
  record: CircuitRecord | undefined,
  step: CircuitStep,
  now: number,
): CircuitReply {
  if (!record || record.state === 'closed' || record.state === 'forced_closed') {
    const { state, epoch } = record ?? { state: 'closed', epoch: 0 };
    return { kind: 'circuit', admitted: true, state, epoch };
  }
  const { state, epoch } = record;
  if (state === 'forced_open') return { kind: 'circuit', admitted: false, state, epoch };
  if (state === 'open') {
    if (now < record.openUntil) {
      return { kind: 'circuit', admitted: false, state, epoch, retryMs: record.openUntil - now };
    }
    move(record, 'half_open', now);
    return probe(record, step, now, true);
  }
  record.permits = record.permits.filter(({ deadline }) => deadline > now);
  const ours = record.permits.some(({ token }) => token === step.token);
  if (ours) return { kind: 'circuit', admitted: true, state, epoch };
  const out = record.permits.length;
  // With none out the next one decides, also after the option was lowered in between.
  if (out === 0 || out + record.successes < step.permits) return probe(record, step, now, false);
  const first = Math.min(...record.permits.map(({ deadline }) => deadline));
  return { kind: 'circuit', admitted: false, state, epoch, retryMs: Math.max(1, first - now) };
}

function probe(
  record: CircuitRecord,
  step: CircuitStep,
  now: number,
  first: boolean,
): CircuitReply {
  record.permits.push({ token: step.token, deadline: now + step.probeMs });
  const { epoch } = record;
  return {
    kind: 'circuit',
    admitted: true,
    state: 'half_open',
    epoch,
    ...(first && { transition: 'half_opened' }),
  };
}

/** Counts how a call ended. Changes the record. */
export function recordOutcome(record: CircuitRecord, step: OutcomeStep, now: number): OutcomeReply {
  if (record.epoch !== step.epoch) return { kind: 'outcome', state: 'stale' };
  if (record.state === 'closed') return countCall(record, step, now);
  if (record.state !== 'half_open' || !takePermit(record, step.token, now)) {
    return { kind: 'outcome', state: 'stale' };
  }
  if (!step.success) return open(record, step, now, 1);
  record.successes += 1;
  if (record.successes < step.permits) return { kind: 'outcome', state: 'counted' };
  move(record, 'closed', now);
  record.opens = 0;
  return { kind: 'outcome', state: 'counted', transition: 'closed', epoch: record.epoch };
}

function countCall(record: CircuitRecord, step: OutcomeStep, now: number): OutcomeReply {
  const slot = Math.floor(now / bucketMs(step.windowMs));
  let [calls, failures] = [0, 0];
  let current: Bucket | undefined;
  const { buckets } = record;
  for (let at = buckets.length - 1; at >= 0; at--) {
    const bucket = buckets[at] as Bucket;
    if (bucket.slot <= slot - BUCKETS || bucket.slot > slot) {
      buckets.splice(at, 1);
      continue;
    }
    if (bucket.slot === slot) current = bucket;
    calls += bucket.calls;
    failures += bucket.failures;
  }
  if (!current) buckets.push((current = { slot, calls: 0, failures: 0 }));
  current.calls += 1;
  calls += 1;
  if (step.success) return { kind: 'outcome', state: 'counted' };
  current.failures += 1;
  failures += 1;
  const rate = failures / calls;
  if (calls < step.minimumCalls || rate < step.failureRate) {
    return { kind: 'outcome', state: 'counted' };
  }
  return open(record, step, now, rate);
}

function open(record: CircuitRecord, step: OutcomeStep, now: number, rate: number): OutcomeReply {
  const ms = openMs(step, record.opens);
  move(record, 'open', now);
  record.opens += 1;
  record.openUntil = now + ms;
  return {
    kind: 'outcome',
    state: 'counted',
    transition: 'opened',
    epoch: record.epoch,
    failureRate: rate,
    retryMs: ms,
  };
}

/**
 * How long it stays open: `openMs` at first, twice as long each time that a probe fails, at most
 * `maxOpenMs`; of a repeated one half is random (equal jitter), so that many breakers of one
 * dependency do not probe it in step.
 */
function openMs({ openMs: base, maxOpenMs, jitter }: OutcomeStep, opens: number): number {
  if (opens === 0) return base;
  const longest = Math.min(base * 2 ** Math.min(opens, 32), Math.max(maxOpenMs, base));
  return Math.max(1, Math.floor(longest / 2 + (longest / 2) * jitter));
}

/** How near the failures have brought it to opening: 0 with none, 1 where it opens. */
export function nearnessToOpening({ buckets }: CircuitRecord, step: OutcomeStep): number {
  const calls = buckets.reduce((sum, bucket) => sum + bucket.calls, 0);
  const failures = buckets.reduce((sum, bucket) => sum + bucket.failures, 0);
  return failures / (step.failureRate * Math.max(calls, step.minimumCalls));
}

/** Gives a permit back that nobody has learned anything by. */
export function unpermit(
  record: CircuitRecord | undefined,
  step: UnpermitStep,
  now: number,
): UnpermitReply {
  const returned = record?.state === 'half_open' && takePermit(record, step.token, now);
  return { kind: 'unpermit', returned: returned === true };
}

/** One that has lapsed is nobody's any more. */
function takePermit(record: CircuitRecord, token: string, now: number): boolean {
  const at = record.permits.findIndex((permit) => permit.token === token && permit.deadline > now);
  if (at < 0) return false;
  record.permits.splice(at, 1);
  return true;
}

/** A later epoch than any before, also after the store was emptied: it is a time where that is later. */
function move(record: CircuitRecord, state: CircuitState, now: number): void {
  record.state = state;
  record.epoch = Math.max(record.epoch + 1, now);
  record.successes = 0;
  record.permits = [];
  record.buckets = [];
}

function bucketMs(windowMs: number): number {
  return Math.max(1, Math.floor(windowMs / BUCKETS));
}

/**
 * How long a store remembers the record: as long as it is open, and then for `ttlMs`. One that has
 * never opened is nothing but the calls of its window, and there may be one for each key that a
 * stranger thinks of.
 */
export function circuitLifetimeMs(
  { state, epoch, openUntil }: CircuitRecord,
  { ttlMs, windowMs = ttlMs }: { readonly ttlMs: number; readonly windowMs?: number },
  now: number,
): number {
  if (state === 'closed' && epoch === 0) return Math.min(windowMs, ttlMs);
  return Math.max(0, openUntil - now) + ttlMs;
}
