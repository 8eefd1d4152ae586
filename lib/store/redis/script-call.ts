import type { EnterStep, Hold } from '../store.js';
import { takesHold } from '../undo.js';
import type { ScriptName } from './own-client.js';
import { encodeLeave, encodeStep, type ReturnStep } from './step-codec.js';

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
    // A charge that may have happened must not happen twice; leases, claims and permits know their own token.
    again: steps.every(takesHold) ? [] : ['look'],
  };
}

export function leaveCall(steps: readonly ReturnStep[]): ScriptCall {
  return {
    script: 'cmdxLeave',
    keys: steps.map((step) => step.key),
    args: steps.map(encodeLeave),
    hasDeadline: false,
    again: ['again'],
  };
}

export function renewCall(holds: readonly Hold[]): ScriptCall {
  return {
    script: 'cmdxRenew',
    keys: holds.map((hold) => hold.key),
    args: holds.map(({ ttlMs, leaseMs, token }) => `${ttlMs}:${leaseMs}:${token}`),
    hasDeadline: true,
    again: [],
  };
}

export function inspectCall(key: string): ScriptCall {
  return { script: 'cmdxInspect', keys: [key], args: [], hasDeadline: false, again: [] };
}
