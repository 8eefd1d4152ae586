import { StoreError } from '../../errors/store.error.js';
import { circuitStateOf } from '../circuit.js';
import type {
  CircuitReply,
  ClaimReply,
  EnterReply,
  EnterStep,
  LeaveReply,
  LeaveStep,
  OutcomeReply,
  UnclaimStep,
} from '../store.js';
import { undoOf } from '../undo.js';

/** What a script answers: numbers, and texts where a key's value is shown. */
export type ScriptReply = readonly (number | string)[];

/** Takes a claim back that had taken over an abandoned record: that record stands again. */
interface PutBackStep extends Omit<UnclaimStep, 'kind'> {
  readonly kind: 'put_back';
  readonly record: string;
}

/** What the `leave` script can do. */
export type ReturnStep = LeaveStep | PutBackStep;

/** One step as the short argument that the `enter` script reads. */
export function encodeStep(step: EnterStep): string {
  switch (step.kind) {
    case 'fixed_window':
      return `f${step.max}:${step.windowMs}`;
    case 'leaky_bucket':
      return `b${step.capacityUs}:${step.costUs}`;
    case 'circuit':
      return `o${step.ttlMs}:${step.permits}:${step.probeMs}:${step.token}`;
    case 'lease':
      return `l${step.ttlMs}:${step.token}`;
    case 'claim': {
      const mode = step.onAbandoned === 'rerun' ? 'r' : 'f';
      return `c${step.ttlMs}:${step.leaseMs}:${mode}:${step.token}:${step.fingerprint ?? ''}`;
    }
  }
}

/** One step as the argument that the `leave` script reads. */
export function encodeLeave(step: ReturnStep): string {
  switch (step.kind) {
    case 'release':
      return `r${step.token}`;
    case 'unclaim':
      return `u${step.token}`;
    case 'unpermit':
      return `p${step.ttlMs}:${step.token}`;
    case 'outcome':
      return [
        `o${step.ttlMs}`,
        step.epoch,
        step.success ? 's' : 'f',
        step.failureRate,
        step.minimumCalls,
        step.windowMs,
        step.permits,
        step.openMs,
        step.maxOpenMs,
        step.jitter,
        step.token,
      ].join(':');
    case 'put_back':
      return `b${step.token}:${step.record}`;
    case 'complete': {
      const { ttlMs, run, token, fingerprint = '', outcome } = step;
      const state = outcome === undefined ? 't' : 'd';
      return `k${ttlMs}:${run}:${state}:${token}:${fingerprint}:${outcome ?? ''}`;
    }
  }
}

/** How many fields of the answer belong to one step. */
const FIELDS = 3;

/**
 * The replies of the steps that ran.
 *
 * @param reply the answer of the `enter` script; its first field is the store's time
 * @throws StoreError (`error`) when a key holds something that is no breaker, no lease or no claim
 */
export function decodeReplies(steps: readonly EnterStep[], reply: ScriptReply): EnterReply[] {
  const replies: EnterReply[] = [];
  for (let at = 1, i = 0; at < reply.length; at += FIELDS, i += 1) {
    const step = steps[i];
    if (step) replies.push(decodeReply(step, reply.slice(at, at + FIELDS)));
  }
  return replies;
}

function decodeReply(step: EnterStep, [outcome, second, third]: ScriptReply): EnterReply {
  if (outcome === -1) {
    // No key: the message is written to logs.
    throw new StoreError(
      'error',
      `The Redis key of a ${step.kind} holds something else: ${second}`,
    );
  }
  const admitted = outcome === 1;
  switch (step.kind) {
    case 'fixed_window':
      return { kind: step.kind, admitted, count: Number(second), remainingMs: Number(third) };
    case 'leaky_bucket':
      return { kind: step.kind, admitted, levelUs: Number(second), retryMs: Number(third) };
    case 'lease':
      return admitted
        ? { kind: step.kind, admitted }
        : { kind: step.kind, admitted, holder: String(second), remainingMs: Number(third) };
    case 'circuit':
      return decodeCircuit(admitted, String(second), Number(third));
    case 'claim':
      return admitted
        ? { kind: step.kind, admitted, state: 'claimed', run: Number(second) }
        : decodeRefusedClaim(String(second), Number(third));
  }
}

function decodeCircuit(admitted: boolean, text: string, retryMs: number): CircuitReply {
  const [letter = '', epoch, just] = text.split(':');
  return {
    kind: 'circuit',
    admitted,
    state: circuitStateOf(letter),
    epoch: Number(epoch),
    ...(!admitted && retryMs > 0 && { retryMs }),
    ...(just === '1' && { transition: 'half_opened' }),
  };
}

/** The answer of the script about one outcome. */
function decodeOutcome(text: string): OutcomeReply {
  const [told, epoch, rate, ms] = text.split(':');
  if (told === 'stale' || told === 'counted') return { kind: 'outcome', state: told };
  const counted = { kind: 'outcome', state: 'counted', epoch: Number(epoch) } as const;
  return told === 'closed'
    ? { ...counted, transition: 'closed' }
    : { ...counted, transition: 'opened', failureRate: Number(rate), retryMs: Number(ms) };
}

const REFUSED_CLAIM = /^([iadtm]):(\d+):([^:]*):(.*)$/s;
const CLAIM_STATES = {
  i: 'in_progress',
  a: 'abandoned',
  d: 'done',
  t: 'tombstone',
  m: 'mismatch',
} as const;

function decodeRefusedClaim(text: string, remainingMs: number): ClaimReply {
  const [, letter, run, holder = '', outcome = ''] = REFUSED_CLAIM.exec(text) ?? [];
  const state = CLAIM_STATES[letter as keyof typeof CLAIM_STATES];
  return {
    kind: 'claim',
    admitted: false,
    state,
    run: Number(run),
    holder,
    ...(state === 'done' && { outcome }),
    ...(state === 'in_progress' && { remainingMs }),
  };
}

/** What takes back the permits, leases and claims that this answer newly granted, not those that were ours before. */
export function undosOfNew(steps: readonly EnterStep[], reply: ScriptReply): ReturnStep[] {
  return steps.flatMap((step, i): ReturnStep[] => {
    const [outcome, , before] = reply.slice(1 + i * FIELDS);
    const undo = undoOf(step);
    if (!undo || outcome !== 1 || before === 1) return [];
    return [typeof before === 'string' ? { ...undo, kind: 'put_back', record: before } : undo];
  });
}

/** What begins the answer about an outcome, which is a text; every other text is an error. */
const OUTCOME = '=';

/** @throws StoreError (`error`) when Redis refused to write what one of the steps of a `leave` says */
export function checkLeft([, ...codes]: ScriptReply): void {
  const problem = codes.find((code) => typeof code === 'string' && !code.startsWith(OUTCOME));
  if (problem !== undefined) {
    throw new StoreError('error', `Redis could not keep what was left: ${problem}`);
  }
}

/**
 * What became of the steps of a `leave`.
 *
 * @param resent whether the first answer was lost: what is not there then is most likely its work
 * @throws StoreError see {@link checkLeft}
 */
export function decodeLeave(
  steps: readonly LeaveStep[],
  reply: ScriptReply,
  resent: boolean,
): LeaveReply[] {
  checkLeft(reply);
  return steps.map((step, i) => {
    const code = reply[i + 1];
    switch (step.kind) {
      case 'release':
        return { kind: step.kind, released: code === 1 || resent };
      case 'unclaim':
        if (code === 1 || resent) return { kind: step.kind, state: 'dropped' };
        return { kind: step.kind, state: code === 2 ? 'stale' : 'absent' };
      case 'complete':
        if (code === 2) return { kind: step.kind, state: 'stale' };
        return { kind: step.kind, state: code === 1 ? 'completed' : 'late' };
      case 'unpermit':
        return { kind: step.kind, returned: code === 1 || resent };
      case 'outcome':
        return decodeOutcome(String(code).slice(OUTCOME.length));
    }
  });
}
