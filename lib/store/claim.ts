import type {
  ClaimReply,
  ClaimStep,
  CompleteReply,
  CompleteStep,
  UnclaimReply,
  UnclaimStep,
} from './store.js';

/** What stands under the key of a claim. */
export interface ClaimRecord {
  /** `pending` while its owner works, and after, if the owner never told how it ended. */
  readonly state: 'pending' | 'done' | 'tombstone';
  readonly run: number;
  /** Until when, in whole milliseconds of the store's time, the owner is believed to work. */
  readonly leaseUntil: number;
  /** The run that owns the claim, or has finished it. */
  readonly token: string;
  readonly fingerprint: string;
  readonly outcome: string;
}

const LETTERS = { pending: 'p', done: 'd', tombstone: 't' } as const;
const STATES = { p: 'pending', d: 'done', t: 'tombstone' } as const;
const RECORD = /^([pdt]):(\d+):(\d+):([^:]*):([^:]*):(.*)$/s;

/** The one text of a record: `state:run:leaseUntil:token:fingerprint:outcome`. */
export function claimText(record: ClaimRecord): string {
  const { state, run, leaseUntil, token, fingerprint, outcome } = record;
  return `${LETTERS[state]}:${run}:${leaseUntil}:${token}:${fingerprint}:${outcome}`;
}

/** @returns `undefined` for a text that is no record of a claim */
export function parseClaim(text: string): ClaimRecord | undefined {
  const match = RECORD.exec(text);
  if (!match) return undefined;
  const [, letter = 'p', run, leaseUntil, token = '', fingerprint = '', outcome = ''] = match;
  return {
    state: STATES[letter as keyof typeof STATES],
    run: Number(run),
    leaseUntil: Number(leaseUntil),
    token,
    fingerprint,
    outcome,
  };
}

/**
 * What a claim is answered, and what stands under the key afterwards.
 *
 * @param now the store's time in whole milliseconds
 * @returns `next` only when the record changes
 */
export function claim(
  found: ClaimRecord | undefined,
  step: ClaimStep,
  now: number,
): { readonly reply: ClaimReply; readonly next?: ClaimRecord } {
  if (!found) return take(step, 1, now);
  if (found.token === step.token) {
    return found.state === 'pending' ? take(step, found.run, now) : refuse(found, finished(found));
  }
  const theirs = found.fingerprint;
  const ours = step.fingerprint ?? '';
  if (theirs !== '' && ours !== '' && theirs !== ours) return refuse(found, { state: 'mismatch' });
  if (found.state !== 'pending') return refuse(found, finished(found));
  if (found.leaseUntil > now) {
    return refuse(found, { state: 'in_progress', remainingMs: found.leaseUntil - now });
  }
  return step.onAbandoned === 'rerun'
    ? take(step, found.run + 1, now)
    : refuse(found, { state: 'abandoned' });
}

function take(step: ClaimStep, run: number, now: number) {
  const { token, fingerprint = '', leaseMs } = step;
  const reply = { kind: 'claim', admitted: true, state: 'claimed', run } as const;
  const next = {
    state: 'pending',
    run,
    leaseUntil: now + leaseMs,
    token,
    fingerprint,
    outcome: '',
  };
  return { reply, next: next as ClaimRecord };
}

function refuse(
  { run, token }: ClaimRecord,
  facts: Pick<ClaimReply, 'state' | 'outcome' | 'remainingMs'>,
): { readonly reply: ClaimReply } {
  return { reply: { kind: 'claim', admitted: false, run, holder: token, ...facts } };
}

function finished({ state, outcome }: ClaimRecord): Pick<ClaimReply, 'state' | 'outcome'> {
  return state === 'done' ? { state: 'done', outcome } : { state: 'tombstone' };
}

/** What completing a claim comes to. */
export function complete(
  found: ClaimRecord | undefined,
  step: CompleteStep,
): { readonly state: CompleteReply['state']; readonly next?: ClaimRecord } {
  if (found && found.token !== step.token) return { state: 'stale' };
  if (found && found.state !== 'pending') return { state: 'completed' };
  const { run, token, fingerprint = '', outcome } = step;
  return {
    state: found ? 'completed' : 'late',
    next: {
      state: outcome === undefined ? 'tombstone' : 'done',
      run,
      leaseUntil: 0,
      token,
      fingerprint,
      outcome: outcome ?? '',
    },
  };
}

/** What dropping a claim comes to; only a `dropped` one is deleted. */
export function unclaim(found: ClaimRecord | undefined, step: UnclaimStep): UnclaimReply['state'] {
  if (!found) return 'absent';
  return found.token === step.token && found.state === 'pending' ? 'dropped' : 'stale';
}
