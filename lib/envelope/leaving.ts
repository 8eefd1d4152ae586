import type { Ending } from '../policies/policy.js';
import type { LeaveReply, LeaveStep } from '../store/store.js';
import type { Granted, Run } from './run.js';

/** What is sent for something that was granted. */
interface Leaving {
  readonly granted: Granted;
  readonly step: LeaveStep;
}

/** Gives back what the run holds. Never changes what the caller gets: a failure is only told. */
export function leave(run: Run, ending: Ending): Promise<void> | undefined {
  const granted = run.holds;
  if (granted.length === 0) return undefined;
  run.holds = [];
  run.lock = undefined;
  const leavings: Leaving[] = [];
  for (const each of granted) {
    const { policy, step } = each.ring;
    const leaving = policy.giveBack(step, each.reply, ending);
    if (leaving) leavings.push({ granted: each, step: leaving });
    // It is renewed until the store has answered, so that nobody finds it abandoned meanwhile.
    if (each.beat) each.beat.leaving = true;
  }
  if (leavings.length === 0) return void letGo(run, granted);
  try {
    const replies = run.runtime.leaveStore(leavings.map(({ step }) => step));
    if (replies instanceof Promise) {
      return replies
        .then(
          (answers) => tellLeft(run, leavings, answers),
          (error) => tellFailedLeave(run, leavings, error),
        )
        .finally(() => letGo(run, granted));
    }
    tellLeft(run, leavings, replies);
  } catch (error) {
    tellFailedLeave(run, leavings, error);
  }
  letGo(run, granted);
  return undefined;
}

function letGo(run: Run, granted: readonly Granted[]): void {
  for (const { beat } of granted) if (beat) run.runtime.heartbeat.drop(beat);
}

function tellLeft(run: Run, leavings: readonly Leaving[], answers: readonly LeaveReply[]): void {
  const { telemetry } = run.runtime;
  for (let position = 0; position < leavings.length; position++) {
    const { granted, step } = leavings[position] as Leaving;
    const answer = answers[position];
    const event = answer && granted.ring.policy.gaveBack(granted.reply, step, answer);
    if (event && telemetry.hears(event.name)) {
      telemetry.emit(event.name, run, event.payload as never);
    }
  }
}

function tellFailedLeave(run: Run, leavings: readonly Leaving[], error: unknown): void {
  const { telemetry } = run.runtime;
  if (!telemetry.hears('store_error')) return;
  const policies = leavings.map(({ granted }) => granted.ring.policy.policy);
  telemetry.emit('store_error', run, { operation: 'leave', policies, error });
}
