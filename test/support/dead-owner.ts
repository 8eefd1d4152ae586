import { Deadline, type Store } from 'nestjs-cmdx';

/** The `tid` of an owner that died with its claim. */
export const DEAD_OWNER = 'tid-of-a-dead-owner';

/** Leaves the claim of an owner that has died: nobody renews it, and nobody tells how it ended. */
export async function leaveClaimOfTheDead(
  store: Store,
  key: string,
  { leaseMs = 60_000, ttlMs = 600_000 } = {},
): Promise<void> {
  await store.enter(
    [{ kind: 'claim', key, token: DEAD_OWNER, leaseMs, ttlMs, onAbandoned: 'fail' }],
    Deadline.after(1_000),
  );
}
