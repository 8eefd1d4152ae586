import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  currentInvocation,
  type Hold,
  IdempotentBy,
  MemoryStore,
  StoreError,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
refuseUnhandledRejections();

@Injectable()
class Jobs {
  readonly signals: AbortSignal[] = [];
  runs = 0;

  constructor(readonly door: Door) {}

  @IdempotentBy(arg(0), { lease: 60 })
  async long(_id: string, door: Door = this.door): Promise<string> {
    return this.#run(door);
  }

  @IdempotentBy(arg(0), { lease: 3 })
  async short(_id: string, door: Door = this.door): Promise<string> {
    return this.#run(door);
  }

  async #run(door: Door): Promise<string> {
    this.runs += 1;
    this.signals.push(currentInvocation()?.signal as AbortSignal);
    await door.pass();
    return 'done';
  }
}

/** A store that notes what it is asked to renew, and says nothing when it is told to be down. */
class Watched extends MemoryStore {
  readonly renewals: number[] = [];
  readonly keys: string[] = [];
  down = false;
  nonsense: { readonly answer: unknown } | undefined;

  override async renew(holds: readonly Hold[]): Promise<readonly boolean[]> {
    this.renewals.push(holds.length);
    this.keys.push(...holds.map(({ key }) => key));
    if (this.down) throw new StoreError('disconnected', 'down');
    const kept = await super.renew(holds);
    return this.nonsense ? (this.nonsense.answer as readonly boolean[]) : kept;
  }

  /** How often the claim of this key was to be renewed. */
  asked(key: string): number {
    return this.keys.filter((each) => each === key).length;
  }
}

async function bootJobs() {
  const store = new Watched();
  const application = await boot({ providers: [Door, Jobs] }, { store });
  const jobs = application.get(Jobs);
  return { ...application, store, jobs };
}

describe('How long may a body take?', () => {
  it('as long as it needs: its claim stands while it runs', async () => {
    const { jobs, clock } = await bootJobs();
    const first = jobs.short('1');
    for (let second = 0; second < 9; second += 0.5) {
      await clock.advance('500ms');
      await expect(jobs.short('1')).rejects.toMatchObject({ code: 'in_progress' });
    }
    jobs.door.open();
    await expect(first).resolves.toBe('done');
    await expect(jobs.short('1')).resolves.toBe('done');
    expect(jobs.runs).toBe(1);
    expect(jobs.signals[0]?.aborted).toBe(false);
  });

  it.each([0, 1, 7, 10, 11, 15, 19])(
    'even if two renewals in a row fail, whenever it began (%p s after another)',
    async (offset) => {
      const { jobs, clock, store, telemetry } = await bootJobs();
      const another = jobs.long('another');
      await clock.advance(offset);
      const first = jobs.long('1');
      store.down = true;
      for (let second = 0; second < 80; second++) {
        await expect(jobs.long('1')).rejects.toMatchObject({ code: 'in_progress' });
        if (store.asked('cmdx:idem:Jobs.long:1') === 2) store.down = false;
        await clock.advance('1s');
      }
      expect(store.down).toBe(false);
      jobs.door.open();
      await Promise.all([another, first]);
      expect(jobs.signals.map(({ aborted }) => aborted)).toEqual([false, false]);
      expect(telemetry.names).not.toContain('idempotency_stale');
    },
  );

  it('a store that answers a renewal with nonsense has said nothing, and is asked again', async () => {
    const { jobs, clock, store } = await bootJobs();
    const first = jobs.short('1');
    for (const answer of [null, undefined, 'yes', 7, {}, []]) {
      store.nonsense = { answer };
      await clock.advance('1s');
    }
    store.nonsense = undefined;
    const asked = store.renewals.length;
    await clock.advance('6s');
    expect(store.renewals.length).toBeGreaterThan(asked);
    await expect(jobs.short('1')).rejects.toMatchObject({ code: 'in_progress' });
    expect(jobs.signals[0]?.aborted).toBe(false);
    jobs.door.open();
    await first;
  });
});

describe('What does it cost to keep claims alive?', () => {
  it('one timer, however many there are, and none after the last has ended', async () => {
    const { jobs, clock, store } = await bootJobs();
    expect(clock.pending).toBe(0);
    const calls = Array.from({ length: 250 }, (_, each) => jobs.long(`${each}`));
    calls.push(jobs.short('a'), jobs.short('b'));
    // The other is the sweeper of the store.
    expect(clock.pending).toBe(2);
    await clock.advance('40s');
    expect(clock.pending).toBe(2);
    jobs.door.open();
    await Promise.all(calls);
    const asked = store.renewals.length;
    await clock.advance('21s');
    expect(clock.pending).toBe(1);
    await clock.advance('10m');
    expect(store.renewals).toHaveLength(asked);
    await jobs.long('after that');
    expect(clock.pending).toBe(2);
  });

  it('none for a body that ends within a third of its lease', async () => {
    const { jobs, clock, store } = await bootJobs();
    const first = jobs.long('1');
    await clock.advance('19s');
    jobs.door.open();
    await first;
    await clock.advance('10m');
    expect(store.renewals).toEqual([]);
  });

  it('one trip to the store for up to a hundred of them', async () => {
    const { jobs, clock, store } = await bootJobs();
    const calls = Array.from({ length: 250 }, (_, each) => jobs.long(`${each}`));
    await clock.advance('20s');
    expect(store.renewals).toEqual([100, 100, 50]);
    await clock.advance('20s');
    expect(store.renewals).toEqual([100, 100, 50, 100, 100, 50]);
    jobs.door.open();
    await Promise.all(calls);
  });

  it('each as often as its own lease demands', async () => {
    const { jobs, clock, store } = await bootJobs();
    const calls = [jobs.long('1'), jobs.short('1')];
    await clock.advance('60s');
    const [often, both] = [
      store.renewals.filter((n) => n === 1),
      store.renewals.filter((n) => n === 2),
    ];
    expect([often.length, both.length]).toEqual([57, 3]);
    jobs.door.open();
    await Promise.all(calls);
  });
});

describe('What becomes of a claim that is lost?', () => {
  it('the signal of its run aborts at the next renewal, and of no other run', async () => {
    const { jobs, clock, store } = await bootJobs();
    const calls = [jobs.short('1'), jobs.short('2')];
    await store.forget('cmdx:idem:Jobs.short:1');
    await clock.advance('1s');
    expect(jobs.signals.map(({ aborted }) => aborted)).toEqual([true, false]);
    expect(jobs.signals[0]?.reason).toMatchObject({ code: 'lease_lost', task: 'Jobs.short' });
    await clock.advance('1s');
    expect(store.renewals).toEqual([2, 1]);
    jobs.door.open();
    await expect(Promise.all(calls)).resolves.toEqual(['done', 'done']);
  });
});
