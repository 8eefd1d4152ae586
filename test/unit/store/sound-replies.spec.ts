import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  CircuitBreaker,
  type CircuitReply,
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

  @CircuitBreaker('bank', { minimumCalls: 1 })
  async transfer(): Promise<string> {
    this.paid += 1;
    return 'paid';
  }
}

/** A store that answers with something else than it decided. */
class LyingStore extends RemoteStore {
  constructor(
    private readonly lie: Partial<Record<keyof ClaimReply | keyof CircuitReply, unknown>>,
  ) {
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

describe('A store answers about a circuit what the contract does not know: does the body run?', () => {
  it.each([
    ['admitted, and open', { state: 'open' }],
    ['admitted, and forced open', { state: 'forced_open' }],
    ['admitted, and does not say in which state', { state: undefined }],
    ['admitted in a state of its own', { state: 'melted' }],
    ['refused, and closed', { admitted: false }],
    ['refused, and forced closed', { admitted: false, state: 'forced_closed' }],
    ['an epoch that is no number', { epoch: '1' }],
    ['no epoch', { epoch: undefined }],
    ['an epoch that is no whole number', { epoch: 0.5 }],
    ['no circuit at all', { kind: 'lease' }],
  ])('%s: no, the store counts as unavailable', async (_, lie) => {
    const { get } = await boot({ providers: [Payments] }, { store: new LyingStore(lie) });
    await expect(get(Payments).transfer()).rejects.toMatchObject({
      code: 'store_unavailable',
      metadata: { reason: 'error', policies: ['circuitBreaker'] },
    });
    expect(get(Payments).paid).toBe(0);
  });

  it.each([
    ['forced closed', { state: 'forced_closed' }, 'paid'],
    ['half open', { state: 'half_open' }, 'paid'],
    ['half open, and no', { admitted: false, state: 'half_open', retryMs: 5 }, 'circuit_open'],
    ['forced open', { admitted: false, state: 'forced_open' }, 'circuit_open'],
  ])('%s: that it may be', async (_, said, outcome) => {
    const { get } = await boot({ providers: [Payments] }, { store: new LyingStore(said) });
    const told = await get(Payments)
      .transfer()
      .catch(({ code }: { code: string }) => code);
    expect(told).toBe(outcome);
  });
});
