import { setTimeout as sleep } from 'node:timers/promises';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  type Deadline,
  type EnterReply,
  type EnterStep,
  type LeaveReply,
  type LeaveStep,
  LockWith,
  RateLimit,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { RemoteStore } from '../../support/http-remote-store.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
refuseUnhandledRejections();

@Injectable()
class Orders {
  shipped = 0;

  @RateLimit(arg(0), { max: 5, per: 60 })
  @LockWith(arg(0))
  async ship(_id: string): Promise<string> {
    this.shipped += 1;
    return 'shipped';
  }
}

/** Later than any store may answer whose timeout is 100 ms. */
const LATE_MS = 400;

type Enter = (replies: EnterReply[], steps: readonly EnterStep[]) => unknown;

/** A store that answers, but not what the contract says. */
class BrokenStore extends RemoteStore {
  constructor(
    private readonly spoil: Enter,
    private readonly failLeave = false,
  ) {
    super(0);
  }

  override enter(steps: readonly EnterStep[], deadline: Deadline): Promise<EnterReply[]> {
    return super.enter(steps, deadline).then((replies) => this.spoil(replies, steps)) as never;
  }

  override leave(steps: readonly LeaveStep[]): Promise<LeaveReply[]> {
    if (this.failLeave) throw new Error('cannot leave');
    return super.leave(steps);
  }
}

/** One whose `enter` does not even answer with a promise. */
class SynchronousStore extends RemoteStore {
  override enter(): Promise<EnterReply[]> {
    return [] as never;
  }
}

/** One whose promises are somebody else's. */
class ForeignPromiseStore extends RemoteStore {
  override enter(steps: readonly EnterStep[], deadline: Deadline): Promise<EnterReply[]> {
    return ForeignPromise.resolve(super.enter(steps, deadline));
  }

  override leave(steps: readonly LeaveStep[]): Promise<LeaveReply[]> {
    return ForeignPromise.resolve(super.leave(steps));
  }
}

/** Of another realm: no instance of our own. */
const ForeignPromise = runInNewContext('Promise') as PromiseConstructor;

describe('A store says less than the contract asks: does the body run?', () => {
  const broken: Readonly<Record<string, Enter>> = {
    'nothing at all': () => undefined,
    'no reply': () => [],
    'a reply too few': (replies) => replies.slice(0, 1),
    'a reply too many': (replies) => [...replies, ...replies],
    'replies of the wrong kind': (replies) => replies.toReversed(),
    'replies that are none': (_replies, steps) => steps.map(() => null),
    'a refusal in the middle': ([first, second]) => [{ ...first, admitted: false }, second],
    'no decision': (replies) => replies.map(({ kind }) => ({ kind })),
  };
  for (const [name, spoil] of Object.entries(broken)) {
    it(`${name}: no, the store counts as unavailable`, async () => {
      const { get } = await boot({ providers: [Orders] }, { store: new BrokenStore(spoil) });
      await expect(get(Orders).ship('42')).rejects.toMatchObject({
        code: 'store_unavailable',
        metadata: { reason: 'error', policies: ['rateLimit', 'lock'] },
      });
      expect(get(Orders).shipped).toBe(0);
    });
  }

  it('no reply, at once: neither', async () => {
    const store = new SynchronousStore(0);
    const { get } = await boot({ providers: [Orders] }, { store });
    await expect(get(Orders).ship('42')).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(get(Orders).shipped).toBe(0);
  });

  it('a promise of another realm is awaited', async () => {
    const store = new ForeignPromiseStore(5);
    const { get, telemetry } = await boot({ providers: [Orders] }, { store });
    const [first, second] = await Promise.allSettled([
      get(Orders).ship('42'),
      get(Orders).ship('42'),
    ]);
    expect(first).toMatchObject({ value: 'shipped' });
    expect(second).toMatchObject({ reason: { code: 'busy' } });
    expect(telemetry.of('store_error')).toEqual([]);
    expect(await store.get('cmdx:lock:Orders.ship:42')).toBeUndefined();
  });
});

describe('A store answers after everybody has given up: does the process live?', () => {
  const late: Readonly<Record<string, Enter>> = {
    'with nothing': () => sleep(LATE_MS),
    'with an error that is none': () => sleep(LATE_MS).then(() => Promise.reject(null)),
    'with leases that cannot be given back': (replies) => sleep(LATE_MS, replies),
  };
  for (const [name, spoil] of Object.entries(late)) {
    it(`${name}: yes, and the call was refused in time`, async () => {
      const store = new BrokenStore(spoil, true);
      const { get } = await boot({ providers: [Orders] }, { store, storeTimeout: '100ms' });
      await expect(get(Orders).ship('42')).rejects.toMatchObject({
        code: 'store_unavailable',
        metadata: { reason: 'timeout' },
      });
      await sleep(LATE_MS);
      expect(get(Orders).shipped).toBe(0);
    });
  }
});

describe('A store that fails at once when it is greeted: does the application boot?', () => {
  class RudeStore extends RemoteStore {
    override open(): void {
      throw new Error('cannot open');
    }

    override get(): never {
      throw new Error('cannot read');
    }
  }

  it('yes, and it is asked call by call', async () => {
    const { get } = await boot({ providers: [Orders] }, { store: new RudeStore(0) });
    await expect(get(Orders).ship('42')).resolves.toBe('shipped');
  });
});
