import { StoreError } from '../errors/store.error.js';
import type { CircuitReply, ClaimReply, EnterReply, EnterStep } from './store.js';

/**
 * What a store answered to `enter`, if it is an answer: one reply per step up to the first refusal.
 * A store that says less has granted nothing.
 *
 * @throws StoreError (`error`) for anything else
 */
export function soundReplies(steps: readonly EnterStep[], answer: unknown): EnterReply[] {
  if (isSound(steps, answer)) return answer;
  throw new StoreError(
    'error',
    'The store broke its contract: expected one reply per step, in order, up to the first refusal.',
  );
}

function isSound(steps: readonly EnterStep[], answer: unknown): answer is EnterReply[] {
  if (!Array.isArray(answer)) return false;
  const replies: readonly (Partial<EnterReply> | null | undefined)[] = answer;
  for (let position = 0; position < steps.length; position++) {
    const reply = replies[position];
    if (reply?.kind !== steps[position]?.kind || typeof reply?.admitted !== 'boolean') return false;
    if (reply.kind === 'claim' && !isSoundClaim(reply)) return false;
    if (reply.kind === 'circuit' && !isSoundCircuit(reply)) return false;
    if (!reply.admitted) return replies.length === position + 1;
  }
  return replies.length === steps.length;
}

const REFUSED: ReadonlySet<unknown> = new Set([
  'in_progress',
  'abandoned',
  'done',
  'tombstone',
  'mismatch',
]);

function isSoundClaim({ admitted, state, run, outcome }: Partial<ClaimReply>): boolean {
  if (!Number.isSafeInteger(run)) return false;
  if (state === 'done' && typeof outcome !== 'string') return false;
  return admitted ? state === 'claimed' : REFUSED.has(state);
}

const PASSING: ReadonlySet<unknown> = new Set(['closed', 'half_open', 'forced_closed']);
const REFUSING: ReadonlySet<unknown> = new Set(['open', 'half_open', 'forced_open']);

function isSoundCircuit({ admitted, state, epoch }: Partial<CircuitReply>): boolean {
  if (!Number.isSafeInteger(epoch)) return false;
  return (admitted ? PASSING : REFUSING).has(state);
}
