import { AsyncLocalStorage } from 'node:async_hooks';
import type { ExecutionContext } from '@nestjs/common';
import { once } from '../process-wide.js';
import type { HandlerEnvelope } from './handler-envelope.js';
import type { Run } from './run.js';

/** What surrounds the code that is running. */
export type Scope = Run | HandlerEnvelope | HandlerScope | CollectorScope;

/** Inside a Nest handler that is not guarded itself: guarded methods it calls read its context. */
export interface HandlerScope {
  readonly kind: 'handler';
  readonly context: () => ExecutionContext | undefined;
}

/** Inside `cmdx.execute(fn)`, at its top level. */
export interface CollectorScope {
  readonly kind: 'collector';
  readonly runs: Run[];
  outer: Scope | undefined;
  ended: boolean;
}

/** One per process: the ESM and the CJS copy of the package see each other's invocations. */
export const scopes = once('scopes', () => new AsyncLocalStorage<Scope | undefined>());

/** The scope without what has ended at its inner end: what that left behind is not inside it. */
export function liveScope(scope: Scope | undefined): Scope | undefined {
  let each = scope;
  while (each && each.kind !== 'handler' && each.ended) each = each.outer;
  return each;
}

/** The innermost invocation that has not ended: one that has is nobody's parent. */
export function openRun(scope: Scope | undefined): Run | undefined {
  let each = liveScope(scope);
  while (each?.kind === 'collector' || (each?.kind === 'envelope' && each.current.ended)) {
    each = liveScope(each.outer);
  }
  if (each?.kind === 'envelope') return each.current;
  return each?.kind === 'run' ? each : undefined;
}

/** The context of the Nest handler that surrounds the scope. */
export function contextOf(scope: Scope | undefined): ExecutionContext | undefined {
  let each = liveScope(scope);
  while (each?.kind === 'collector') each = liveScope(each.outer);
  return each?.kind === 'handler' ? each.context() : each?.context;
}
