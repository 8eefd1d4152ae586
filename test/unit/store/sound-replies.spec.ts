import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  type ClaimReply,
  type Deadline,
  type EnterReply,
  type EnterStep,
  IdempotentBy,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { RemoteStore } from '../../support/http-remote-store.js';

closeApplicationsAfterEach();

@Injectable()
class Payments {
  paid = 0;

  @IdempotentBy(arg(0))
  async pay(_id: string): Promise<string> {
    this.paid += 1;
    return 'paid';
  }
}

/** A store that answers a claim with something else than it decided. */
class LyingStore extends RemoteStore {
  constructor(private readonly lie: Partial<Record<keyof ClaimReply, unknown>>) {
    super(0);
  }

  override async enter(steps: readonly EnterStep[], deadline: Deadline): Promise<EnterReply[]> {
    const replies = await super.enter(steps, deadline);
    return replies.map((reply) => ({ ...reply, ...this.lie })) as EnterReply[];
  }
}

describe('A store answers a claim with what the contract does not know: does the body run?', () => {
  it.each([
    ['admitted, and does not say how', { state: undefined }],
    ['admitted, and done', { state: 'done', outcome: '' }],
    ['admitted, and in progress', { state: 'in_progress' }],
    ['refused, and claimed', { admitted: false }],
    ['refused for a reason of its own', { admitted: false, state: 'busy' }],
    ['done, without what came of it', { admitted: false, state: 'done' }],
    ['done, with an outcome that is no text', { admitted: false, state: 'done', outcome: {} }],
    ['a run that is no number', { run: '1' }],
    ['no run', { run: undefined }],
    ['a run that is no whole number', { run: 1.5 }],
    ['no claim at all', { kind: 'lease' }],
  ])('%s: no, the store counts as unavailable', async (_, lie) => {
    const { get } = await boot({ providers: [Payments] }, { store: new LyingStore(lie) });
    await expect(get(Payments).pay('42')).rejects.toMatchObject({
      code: 'store_unavailable',
      metadata: { reason: 'error', policies: ['idempotency'] },
    });
    expect(get(Payments).paid).toBe(0);
  });

  it('the truth is believed', async () => {
    const { get } = await boot({ providers: [Payments] }, { store: new LyingStore({}) });
    expect(await get(Payments).pay('42')).toBe('paid');
    expect(await get(Payments).pay('42')).toBe('paid');
    expect(get(Payments).paid).toBe(1);
  });
});
