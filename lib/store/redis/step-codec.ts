import { StoreError } from '../../errors/store.error.js';
import type { EnterReply, EnterStep, LeaseStep } from '../store.js';

/** What a script answers: numbers, and texts where a key's value is shown. */
export type ScriptReply = readonly (number | string)[];

/** One step as the short argument that the `enter` script reads. */
export function encodeStep(step: EnterStep): string {
  switch (step.kind) {
    case 'fixed_window':
      return `f${step.max}:${step.windowMs}`;
    case 'leaky_bucket':
      return `b${step.capacityUs}:${step.costUs}`;
    case 'lease':
      return `l${step.ttlMs}:${step.token}`;
  }
}

/** How many fields of the answer belong to one step. */
const FIELDS = 3;

/**
 * The replies of the steps that ran.
 *
 * @param reply the answer of the `enter` script; its first field is the store's time
 * @throws StoreError (`error`) when a key holds something that is no lease
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
    throw new StoreError('error', `The Redis key of a lease holds something else: ${second}`);
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
  }
}

/** The leases that this answer newly granted, without those that were ours before the call. */
export function newLeases(steps: readonly EnterStep[], reply: ScriptReply): LeaseStep[] {
  return steps.filter((step, i): step is LeaseStep => {
    const at = 1 + i * FIELDS;
    return step.kind === 'lease' && reply[at] === 1 && reply[at + 2] === 0;
  });
}
