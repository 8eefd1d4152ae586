import { expect } from '@jest/globals';

export const doors = ['.', './redis', './row-lock', './testing', './testing/bypass'] as const;

/** How an application names a door. */
export function specifier(door: string): string {
  return door.replace('.', 'nestjs-cmdx');
}

/** Of three starts with a limit of two, the second while the first one's body runs. */
export const serviceAnswers = ['reconciled acct_42', 'busy', 'rate_limited'];

export const httpAnswers = [
  { status: 201, retryAfter: null },
  { status: 409, code: 'busy', retryAfter: null },
  { status: 429, code: 'rate_limited', retryAfter: expect.stringMatching(/^(59|60)$/) },
];

const oneApplication = {
  held: 'ran',
  cjsWhileEsmHolds: 'busy',
  bothWhileEsmHolds: 'busy',
  bothAgain: 'rate_limited',
  sameStore: true,
};

export const copiesThatMeet = {
  twoCopies: true,
  sameClasses: { Store: true, Telemetry: true, Cmdx: true },
  moduleOfEsm: oneApplication,
  moduleOfCjs: oneApplication,
  twoRoots: 'definition',
};
