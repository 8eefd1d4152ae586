import type { PlannedRing, PlannedRowLock } from '../envelope/plan.js';
import { DefinitionError } from '../errors/definition.error.js';
import { type Declarable } from '../policies/option-rules.js';
import { siteOf } from './context.js';
import type { MethodDeclaration } from './declaration.js';

/**
 * A skipped call is answered 202 with a body, and a duplicate with the first answer, which some
 * handlers have no room for; and a stream is not kept.
 */
export function assertAnswers(
  declaration: MethodDeclaration,
  rings: readonly PlannedRing[],
  rowLock: PlannedRowLock | undefined,
  stream: boolean,
): void {
  const site = ({ policy }: PlannedRing): string => siteOf(declaration, policy.policy);
  const keeping = rings.find((ring) => ring.policy.policy === 'idempotency');
  if (keeping && (stream || declaration.streamsEvents)) {
    throw new DefinitionError(
      `${site(keeping)}: expected a method that returns a Promise, got one that returns an Observable, whose values cannot be kept; where a class decorator reaches a method that it does not fit, write the decorator with (false) there`,
    );
  }
  const { fixedAnswer, answersByItself } = declaration;
  const skipping = rings.find((ring) => ring.policy.canSkip);
  const skippingSite = skipping ? site(skipping) : rowLock?.onBusy === 'skip' && rowLock.site;
  if (skippingSite && fixedAnswer) {
    throw new DefinitionError(
      `${skippingSite}: expected a handler that Nest answers with its value, because a refusal skips the body; got ${fixedAnswer}`,
    );
  }
  const replaying = rings.find((ring) => ring.policy.canReplay);
  if (replaying && answersByItself) {
    throw new DefinitionError(
      `${site(replaying)}: expected a handler that Nest answers with its value, because a duplicate is given the first answer; got ${fixedAnswer}`,
    );
  }
}

/** @throws DefinitionError for what cannot go round a stream */
export function assertNoStream(
  declaration: MethodDeclaration,
  written: { readonly [D in Declarable]?: unknown },
): void {
  for (const [name, value] of Object.entries(written)) {
    if (value === undefined) continue;
    throw new DefinitionError(
      `${siteOf(declaration, name as Declarable)}: expected a method that returns a Promise, got one that returns an Observable`,
    );
  }
}
