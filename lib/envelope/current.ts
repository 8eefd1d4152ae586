import type { Invocation } from '../invocation.js';
import { openRun, scopes } from './scope.js';

/** The innermost guarded call that is running here; `undefined` outside one, and after it has ended. */
export function currentInvocation(): Invocation | undefined {
  return openRun(scopes.getStore());
}
