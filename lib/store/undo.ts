import type { EnterStep, LeaveStep } from './store.js';

/** What takes back a step that was, or may have been, granted; `undefined` for one that nothing takes back. */
export function undoOf(step: EnterStep): LeaveStep | undefined {
  const { key } = step;
  switch (step.kind) {
    case 'lease':
      return { kind: 'release', key, token: step.token, ttlMs: step.ttlMs };
    case 'circuit':
      if (step.borrowed) return undefined;
      return { kind: 'unpermit', key, token: step.token, ttlMs: step.probeMs };
    case 'claim': {
      // The record of a claim outlives its lease, and until it is dropped nobody can begin.
      const { token, leaseMs, ttlMs } = step;
      return { kind: 'unclaim', key, token, ttlMs: leaseMs + ttlMs };
    }
    default:
      return undefined;
  }
}

/**
 * What to send instead of steps of a `leave` that failed, as long as it makes sense. A call that was
 * not counted is no great loss, and counting it twice would be one: of a probe only its permit is
 * given back, so that another can find out.
 */
export function stillToLeave(steps: readonly LeaveStep[]): LeaveStep[] {
  return steps.flatMap((step): LeaveStep[] => {
    if (step.kind !== 'outcome') return [step];
    const { key, token, probeMs } = step;
    return probeMs === undefined ? [] : [{ kind: 'unpermit', key, token, ttlMs: probeMs }];
  });
}

/** Whether a step, once granted, holds something that has to be given back. */
export function takesHold(step: EnterStep): boolean {
  const { kind } = step;
  return kind === 'lease' || kind === 'claim' || (kind === 'circuit' && !step.borrowed);
}

/** See {@link undoOf}; in the order of the steps. */
export function undosOf(steps: readonly EnterStep[]): LeaveStep[] {
  return steps.flatMap((step) => undoOf(step) ?? []);
}
