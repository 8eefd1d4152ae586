import { andThen, type Awaitable, isThenable } from '../awaitable.js';
import { InvalidKeyError, KeyMissingError } from '../errors/refusals.js';
import { isKeyProblem } from '../keys/key-resolver.js';
import { toSegment } from '../keys/store-key.js';
import type { PlannedRing } from './plan.js';
import type { Run } from './run.js';

/** Whether and under which key a ring applies to an invocation. */
export type Resolution =
  | { readonly applies: false; readonly blank: boolean }
  | { readonly applies: true; readonly key: string; readonly fingerprint?: string | undefined };

const STEPS_ASIDE: Resolution = Object.freeze({ applies: false, blank: false });
const BLANK: Resolution = Object.freeze({ applies: false, blank: true });

/**
 * Asks a ring's gates, then its key, then what else the ring wants to know of the call.
 *
 * @throws what a gate or key threw; a refusal for a blank or impossible key
 */
export function resolve(ring: PlannedRing, run: Run): Awaitable<Resolution> {
  const resolution =
    ring.gates.length === 0
      ? resolveKey(ring, run)
      : andThen(passesGates(ring, run, 0), (passes) =>
          passes ? resolveKey(ring, run) : STEPS_ASIDE,
        );
  const { fingerprint } = ring;
  if (!fingerprint) return resolution;
  return andThen(resolution, (known) => {
    if (!known.applies) return known;
    const read = fingerprint.read(run);
    const add = (digest: unknown): Resolution => ({ ...known, fingerprint: digest as string });
    return isThenable(read) ? Promise.resolve(read).then(add) : add(read);
  });
}

export function passesGates(
  ring: Pick<PlannedRing, 'gates'>,
  run: Run,
  position: number,
): Awaitable<boolean> {
  const gate = ring.gates[position];
  if (!gate) return true;
  const goOn = (answer: unknown): Awaitable<boolean> =>
    Boolean(answer) === gate.wanted && passesGates(ring, run, position + 1);
  const answer = gate.read(run);
  return isThenable(answer) ? Promise.resolve(answer).then(goOn) : goOn(answer);
}

function resolveKey(ring: PlannedRing, run: Run): Awaitable<Resolution> {
  if (!ring.key) return { applies: true, key: ring.keyBase };
  try {
    const value = ring.key.read(run);
    return isThenable(value)
      ? Promise.resolve(value).then(
          (settled) => toResolution(ring, run, settled),
          (error) => rethrowKeyProblem(ring, run, error),
        )
      : toResolution(ring, run, value);
  } catch (error) {
    return rethrowKeyProblem(ring, run, error);
  }
}

function toResolution(ring: PlannedRing, run: Run, value: unknown): Resolution {
  let segment: string | undefined;
  try {
    segment = toSegment(value);
  } catch (error) {
    return rethrowKeyProblem(ring, run, error);
  }
  if (segment !== undefined) return { applies: true, key: `${ring.keyBase}:${segment}` };
  if (ring.onBlank === 'bypass') return BLANK;
  throw new KeyMissingError(
    { code: 'key_missing', policy: ring.policy.policy },
    run,
    isFromRequest(ring, run),
  );
}

function rethrowKeyProblem(ring: PlannedRing, run: Run, error: unknown): never {
  if (!isKeyProblem(error)) throw error;
  throw new InvalidKeyError(
    { code: 'key_invalid', policy: ring.policy.policy },
    run,
    isFromRequest(ring, run),
    error.message,
  );
}

/** A handler's arguments are the request's, so a wrong one is the client's fault. */
function isFromRequest(ring: PlannedRing, run: Run): boolean {
  return run.handler !== undefined || ring.key?.fromRequest === true;
}
