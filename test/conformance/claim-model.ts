import { expect } from '@jest/globals';
import * as fc from 'fast-check';
import { Deadline, isStoreError, type Store } from 'nestjs-cmdx';
import type { ClaimReply, CompleteReply, UnclaimReply } from '../../lib/store/store.js';
import { ClaimWitness } from './claim-witness.js';

/** The store under test, the keys of this run, and how its time is moved. */
export interface Subject {
  readonly store: Store;
  /** What keys of this run begin with. */
  readonly prefix: string;
  advance(ms: number): Promise<void>;
  /** Sees every reply, knows nothing of the model, and says what must never be. */
  readonly witness: ClaimWitness;
}

export interface Times {
  readonly leases: readonly number[];
  readonly ttls: readonly number[];
  /** Steps of the clock; none where time cannot be moved at will. */
  readonly steps: readonly number[];
  /** How long to wait after a command that set a time of one millisecond, so that it is over. */
  readonly lapseMs: number;
}

interface Expected {
  readonly state: 'pending' | 'done' | 'tombstone';
  readonly run: number;
  readonly token: string;
  readonly fingerprint: string | undefined;
  readonly outcome: string | undefined;
  readonly leaseEnds: number;
  readonly endsAt: number;
}

/** What should stand in the store, and what its users know. */
export class ClaimModel {
  now = 0;
  readonly #records = new Map<string, Expected>();
  /** How often each owner has begun anew, after a crash or with another call. */
  readonly #lives = new Map<number, number>();
  /** The latest claim that each token was granted under each key. */
  readonly #grants = new Map<string, Grant>();

  token(owner: number, livesAgo: number): string {
    const life = (this.#lives.get(owner) ?? 0) - livesAgo;
    return `owner${owner}.${Math.max(0, life)}`;
  }

  beginAnew(owner: number): void {
    this.#lives.set(owner, (this.#lives.get(owner) ?? 0) + 1);
  }

  grant(key: string, token: string, grant: Grant): void {
    this.#grants.set(`${key} ${token}`, grant);
  }

  grantOf(key: string, token: string): Grant | undefined {
    return this.#grants.get(`${key} ${token}`);
  }

  record(key: string): Expected | undefined {
    const record = this.#records.get(key);
    return record && record.endsAt > this.now ? record : undefined;
  }

  write(key: string, record: Expected | undefined): void {
    if (record) this.#records.set(key, record);
    else this.#records.delete(key);
  }
}

interface Grant {
  readonly run: number;
  readonly fingerprint: string | undefined;
}

type ClaimCommand = fc.AsyncCommand<ClaimModel, Subject>;

interface Asked {
  readonly owner: number;
  readonly key: string;
  readonly leaseMs: number;
  readonly ttlMs: number;
  readonly fingerprint: string | undefined;
  readonly onAbandoned: 'fail' | 'rerun';
}

/** The key of a lease that somebody else holds all the time. */
const BUSY = 'busy';
const PATIENCE_MS = 10_000;

/** An owner asks for a key; once more with its token, if it has asked before in this life. */
class Claim implements ClaimCommand {
  constructor(
    private readonly asked: Asked,
    private readonly times: Times,
    private readonly kind: 'alone' | 'then refused' | 'late',
  ) {}

  check = (): boolean => true;

  async run(model: ClaimModel, subject: Subject): Promise<void> {
    const { owner, key, leaseMs, ttlMs, fingerprint, onAbandoned } = this.asked;
    const { store, prefix, witness } = subject;
    const token = model.token(owner, 0);
    const times = { leaseMs, ttlMs, fingerprint, onAbandoned };
    const step = { kind: 'claim', key: prefix + key, token, ...times } as const;
    const before = await store.get(step.key);
    if (this.kind === 'late') {
      const late = async (): Promise<unknown> => store.enter([step], Deadline.after(-1));
      expect(isStoreError(await late().catch((error: unknown) => error))).toBe(true);
      expect(await store.get(step.key)).toBe(before);
      return;
    }
    const busy = { kind: 'lease', key: prefix + BUSY, token, ttlMs } as const;
    const steps = this.kind === 'alone' ? [step] : [step, busy];
    const replies = await store.enter(steps, Deadline.after(PATIENCE_MS));
    const reply = replies[0] as ClaimReply;
    const { remainingMs, ...told } = reply;
    const found = model.record(key);
    expect(told).toEqual(answer(model, found, token, this.asked));
    expect(remainingMs === undefined).toBe(reply.state !== 'in_progress');
    if (this.kind !== 'alone' && reply.admitted && found?.token !== token) {
      expect(replies[1]?.admitted).toBe(false);
      expect(await store.get(step.key)).toBe(before);
      return;
    }
    witness.claimed(key, token, reply, { now: model.now, leaseMs, ttlMs });
    if (!reply.admitted) {
      expect(await store.get(step.key)).toBe(before);
      return;
    }
    model.grant(key, token, { run: reply.run, fingerprint });
    const leaseEnds = model.now + leaseMs;
    model.write(key, {
      state: 'pending',
      run: reply.run,
      token,
      fingerprint,
      outcome: undefined,
      leaseEnds,
      endsAt: leaseEnds + ttlMs,
    });
    await lapse(model, subject, this.times, leaseMs, ttlMs);
  }

  toString = (): string => `claim, ${this.kind}: ${JSON.stringify(this.asked)}`;
}

function answer(
  model: ClaimModel,
  found: Expected | undefined,
  token: string,
  { fingerprint, onAbandoned }: Asked,
): object {
  const granted = (run: number): object => {
    return { kind: 'claim', admitted: true, state: 'claimed', run };
  };
  if (!found) return granted(1);
  const refused = { kind: 'claim', admitted: false, run: found.run, holder: found.token };
  const finished =
    found.state === 'done' ? { state: 'done', outcome: found.outcome } : { state: 'tombstone' };
  if (found.token === token) {
    return found.state === 'pending' ? granted(found.run) : { ...refused, ...finished };
  }
  if (found.fingerprint && fingerprint && found.fingerprint !== fingerprint) {
    return { ...refused, state: 'mismatch' };
  }
  if (found.state !== 'pending') return { ...refused, ...finished };
  if (found.leaseEnds > model.now) return { ...refused, state: 'in_progress' };
  return onAbandoned === 'rerun' ? granted(found.run + 1) : { ...refused, state: 'abandoned' };
}

interface Whose {
  readonly owner: number;
  /** 1: the one that crashed or was believed to, and comes back. */
  readonly livesAgo: number;
  readonly key: string;
}

/** What an owner does with a claim that it was granted at some time, whoever has it by now. */
abstract class OwnersCommand implements ClaimCommand {
  constructor(protected readonly whose: Whose) {}

  check(model: Readonly<ClaimModel>): boolean {
    return model.grantOf(this.whose.key, this.#token(model)) !== undefined;
  }

  async run(model: ClaimModel, subject: Subject): Promise<void> {
    const { key } = this.whose;
    const token = this.#token(model);
    const grant = model.grantOf(key, token) as Grant;
    const place = subject.prefix + key;
    const before = await subject.store.get(place);
    const changed = await this.act(model, subject, token, grant);
    if (!changed) expect(await subject.store.get(place)).toBe(before);
  }

  toString(): string {
    const { owner, livesAgo, key } = this.whose;
    return `${this.constructor.name} ${key} by ${livesAgo ? 'a former ' : ''}owner ${owner}${this.details()}`;
  }

  /** @returns whether something may have changed under the key */
  protected abstract act(
    model: ClaimModel,
    subject: Subject,
    token: string,
    grant: Grant,
  ): Promise<boolean>;

  protected abstract details(): string;

  #token(model: Readonly<ClaimModel>): string {
    return model.token(this.whose.owner, this.whose.livesAgo);
  }
}

class Complete extends OwnersCommand {
  constructor(
    whose: Whose,
    private readonly outcome: string | undefined,
    private readonly ttlMs: number,
    private readonly times: Times,
  ) {
    super(whose);
  }

  protected async act(
    model: ClaimModel,
    subject: Subject,
    token: string,
    { run, fingerprint }: Grant,
  ): Promise<boolean> {
    const { key } = this.whose;
    const { outcome, ttlMs } = this;
    const ours = { key: subject.prefix + key, token, run, ttlMs, fingerprint, outcome };
    const [reply] = await subject.store.leave([{ kind: 'complete', ...ours }]);
    const { state } = reply as CompleteReply;
    const found = model.record(key);
    const isOurs = found?.token === token;
    expect(state).toBe(found ? (isOurs ? 'completed' : 'stale') : 'late');
    const writes = !found || (isOurs && found.state === 'pending');
    subject.witness.ended(key, token);
    if (!writes) return false;
    subject.witness.finished(key, { run, outcome }, model.now + ttlMs);
    const endsAt = model.now + ttlMs;
    const kind = outcome === undefined ? 'tombstone' : 'done';
    model.write(key, { state: kind, run, token, fingerprint, outcome, leaseEnds: 0, endsAt });
    await lapse(model, subject, this.times, ttlMs);
    return true;
  }

  protected details(): string {
    return `, ${this.outcome === undefined ? 'no outcome' : `"${this.outcome}"`} for ${this.ttlMs} ms`;
  }
}

class Unclaim extends OwnersCommand {
  protected async act(model: ClaimModel, subject: Subject, token: string): Promise<boolean> {
    const { key } = this.whose;
    const [reply] = await subject.store.leave([
      { kind: 'unclaim', key: subject.prefix + key, token, ttlMs: 1_000 },
    ]);
    const { state } = reply as UnclaimReply;
    const found = model.record(key);
    const drops = found?.token === token && found.state === 'pending';
    expect(state).toBe(found ? (drops ? 'dropped' : 'stale') : 'absent');
    subject.witness.ended(key, token);
    if (!drops) return false;
    subject.witness.forgotten(key);
    model.write(key, undefined);
    return true;
  }

  protected details(): string {
    return '';
  }
}

class Renew extends OwnersCommand {
  constructor(
    whose: Whose,
    private readonly leaseMs: number,
    private readonly ttlMs: number,
    private readonly times: Times,
  ) {
    super(whose);
  }

  protected async act(model: ClaimModel, subject: Subject, token: string): Promise<boolean> {
    const { key } = this.whose;
    const { leaseMs, ttlMs } = this;
    const hold = { kind: 'claim', key: subject.prefix + key, token, leaseMs, ttlMs } as const;
    const [kept] = await subject.store.renew([hold]);
    const found = model.record(key);
    const isOurs = found?.token === token && found.state === 'pending';
    expect(kept).toBe(isOurs);
    if (!isOurs) {
      subject.witness.ended(key, token);
      return false;
    }
    subject.witness.renewed(key, token, { now: model.now, leaseMs, ttlMs });
    const leaseEnds = model.now + leaseMs;
    model.write(key, { ...found, leaseEnds, endsAt: leaseEnds + ttlMs });
    await lapse(model, subject, this.times, leaseMs, ttlMs);
    return true;
  }

  protected details(): string {
    return `, lease ${this.leaseMs} ms, ttl ${this.ttlMs} ms`;
  }
}

/** The process dies, or takes up its next call: what it held is left as it stands. */
class BeginAnew implements ClaimCommand {
  constructor(private readonly owner: number) {}

  check = (): boolean => true;

  async run(model: ClaimModel): Promise<void> {
    model.beginAnew(this.owner);
  }

  toString = (): string => `owner ${this.owner} begins anew`;
}

/** An operator forgets the key. */
class Forget implements ClaimCommand {
  constructor(private readonly key: string) {}

  check = (): boolean => true;

  async run(model: ClaimModel, { store, prefix, witness }: Subject): Promise<void> {
    expect(await store.forget(prefix + this.key)).toBe(model.record(this.key) !== undefined);
    witness.forgotten(this.key);
    model.write(this.key, undefined);
  }

  toString = (): string => `forget ${this.key}`;
}

class PassTime implements ClaimCommand {
  constructor(private readonly ms: number) {}

  check = (): boolean => true;

  async run(model: ClaimModel, subject: Subject): Promise<void> {
    await subject.advance(this.ms);
    model.now += this.ms;
  }

  toString = (): string => `${this.ms} ms pass`;
}

async function lapse(
  model: ClaimModel,
  subject: Subject,
  { lapseMs }: Times,
  ...set: readonly number[]
): Promise<void> {
  if (lapseMs === 0 || !set.includes(1)) return;
  await subject.advance(lapseMs);
  model.now += lapseMs;
}

/** Random lives of three owners and two keys. */
export function claimCommands(times: Times): fc.Arbitrary<Iterable<ClaimCommand>> {
  const owner = fc.integer({ min: 0, max: 2 });
  const key = fc.constantFrom('a', 'a', 'a', 'a', 'b');
  const leaseMs = fc.constantFrom(...times.leases);
  const ttlMs = fc.constantFrom(...times.ttls);
  const whose = fc.record({ owner, livesAgo: fc.integer({ min: 0, max: 1 }), key });
  const asked = fc.record({
    owner,
    key,
    leaseMs,
    ttlMs,
    fingerprint: fc.constantFrom(undefined, undefined, undefined, 'one', 'one', 'two'),
    onAbandoned: fc.constantFrom('fail' as const, 'rerun' as const),
  });
  const kind = fc.constantFrom<'alone' | 'then refused' | 'late'>(
    ...Array<'alone'>(6).fill('alone'),
    'then refused',
    'late',
  );
  const outcome = fc.constantFrom('x', '', 'a:b', undefined);
  const passing = times.steps.length > 0 ? [fc.constantFrom(...times.steps)] : [];
  const claiming = fc.tuple(asked, kind).map(([a, k]) => new Claim(a, times, k));
  return fc.commands<ClaimModel, Subject, false>(
    [
      claiming,
      claiming,
      claiming,
      fc.tuple(whose, outcome, ttlMs).map(([w, o, ttl]) => new Complete(w, o, ttl, times)),
      whose.map((w) => new Unclaim(w)),
      fc.tuple(whose, leaseMs, ttlMs).map(([w, lease, ttl]) => new Renew(w, lease, ttl, times)),
      fc.tuple(whose, outcome, ttlMs).map(([w, o, ttl]) => new Complete(w, o, ttl, times)),
      owner.map((o) => new BeginAnew(o)),
      owner.map((o) => new BeginAnew(o)),
      key.map((k) => new Forget(k)),
      ...passing.map((ms) => ms.map((m) => new PassTime(m))),
    ],
    { maxCommands: 80, size: 'max' },
  );
}

/** @param createSubject makes the store to explore; keys are told apart by the prefix */
export async function exploreClaims(
  runs: number,
  times: Times,
  createSubject: () => Promise<Subject>,
): Promise<void> {
  await fc.assert(
    fc.asyncProperty(claimCommands(times), async (commands) => {
      const real = await createSubject();
      const { store, prefix } = real;
      const busy = { kind: 'lease', key: prefix + BUSY, token: 'somebody', ttlMs: 1e12 } as const;
      await store.enter([busy], Deadline.after(PATIENCE_MS));
      await fc.asyncModelRun(() => ({ model: new ClaimModel(), real }), commands);
    }),
    { numRuns: runs },
  );
}
