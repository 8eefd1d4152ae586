import type { EnterStep, ReleaseStep } from '../store.js';
import type { ScriptName } from './own-client.js';
import { encodeStep } from './step-codec.js';

/** One script with its keys and arguments, before a connection and a deadline are known. */
export interface ScriptCall {
  readonly script: ScriptName;
  readonly keys: readonly string[];
  readonly args: readonly string[];
  /** Whether the script reads the deadline as the argument after `args`. */
  readonly hasDeadline: boolean;
  /** What to add when it is sent again after a lost reply; without it that must not be done. */
  readonly again?: readonly string[];
}

export function enterCall(steps: readonly EnterStep[]): ScriptCall {
  return {
    script: 'cmdxEnter',
    keys: steps.map((step) => step.key),
    args: steps.map(encodeStep),
    hasDeadline: true,
    // A charge that may have happened must not happen twice; a lease knows its own token.
    again: steps.every((step) => step.kind === 'lease') ? [] : ['look'],
  };
}

export function leaveCall(steps: readonly ReleaseStep[]): ScriptCall {
  return {
    script: 'cmdxLeave',
    keys: steps.map((step) => step.key),
    args: steps.map((step) => step.token),
    hasDeadline: false,
    again: [],
  };
}
