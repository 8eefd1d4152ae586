import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  currentInvocation,
  DuplicateError,
  IdempotentBy,
  MemoryStore,
  perTask,
  StoreError,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

interface Receipt {
  readonly run: number;
  readonly lines: string[];
}

@Injectable()
class Orders {
  runs = 0;

  constructor(readonly door: Door) {}

  @IdempotentBy(arg(0))
  async replayed(_id: string): Promise<Receipt> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { onDuplicate: 'skip' })
  async skipped(_id: string): Promise<Receipt | undefined> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { onDuplicate: 'fail' })
  async refused(_id: string): Promise<Receipt> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { onDuplicate: 'fail', maxBytes: 0 })
  async refusedUnkept(_id: string): Promise<Receipt> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { ttl: 10 })
  async brief(_id: string): Promise<Receipt> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { ttl: 10, lease: 60 })
  async slow(_id: string): Promise<Receipt> {
    await this.door.pass();
    return this.#ship();
  }

  @IdempotentBy(perTask)
  async once(): Promise<Receipt> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { name: 'shipment', namespace: 'app:once' })
  async named(_id: string): Promise<Receipt> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { name: 'shipment', namespace: 'app:once' })
  async namesake(_id: string): Promise<Receipt> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { onStoreError: 'run' })
  async tolerant(_id: string): Promise<Receipt> {
    return this.#ship();
  }

  @IdempotentBy(arg(0), { if: (_id: string, urgent: boolean) => !urgent, unless: 'isDraft' })
  async gated(_id: string, _urgent = false, _draft = false): Promise<Receipt> {
    return this.#ship();
  }

  isDraft(_id: string, _urgent: boolean, draft: boolean): boolean {
    return draft;
  }

  #ship(): Receipt {
    this.runs += 1;
    return { run: this.runs, lines: [`tid ${currentInvocation()?.tid}`] };
  }
}

async function bootOrders(options: Parameters<typeof boot>[1] = {}) {
  const application = await boot({ providers: [Door, Orders] }, options);
  return { ...application, orders: application.get(Orders) };
}

describe('What does the second call with a key get?', () => {
  it('the first answer, and runs nothing; another key runs', async () => {
    const { orders } = await bootOrders();
    const first = await orders.replayed('1');
    expect(await orders.replayed('1')).toEqual(first);
    expect(await orders.replayed('1')).toEqual(first);
    expect(orders.runs).toBe(1);
    expect(await orders.replayed('2')).toMatchObject({ run: 2 });
  });

  it('the answer as it was: nobody who was given it can change it for the next', async () => {
    const { orders } = await bootOrders();
    const first = await orders.replayed('1');
    const asItWas = structuredClone(first);
    first.lines.push('changed by the first caller');
    const second = await orders.replayed('1');
    expect(second).toEqual(asItWas);
    second.lines.push('changed by the second caller');
    expect(await orders.replayed('1')).toEqual(asItWas);
  });

  it('with onDuplicate skip undefined', async () => {
    const { orders } = await bootOrders();
    await expect(orders.skipped('1')).resolves.toMatchObject({ run: 1 });
    await expect(orders.skipped('1')).resolves.toBeUndefined();
    expect(orders.runs).toBe(1);
  });

  it.each([
    ['refused', true],
    ['refusedUnkept', false],
  ] as const)('with onDuplicate fail an error (%s)', async (method, replayable) => {
    const { orders, telemetry } = await bootOrders();
    await orders[method]('1');
    const error: unknown = await orders[method]('1').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(DuplicateError);
    expect(error).toMatchObject({
      code: 'duplicate',
      replayable,
      status: 409,
      task: `Orders.${method}`,
      metadata: {
        code: 'duplicate',
        onDuplicate: 'fail',
        replayable,
        idempotencyKey: `cmdx:idem:Orders.${method}:1`,
        run: 1,
        holder: telemetry.of('idempotency_claimed')[0]?.tid,
      },
    });
    expect(orders.runs).toBe(1);
  });

  it('the answer of the whole task, where the key is perTask', async () => {
    const { orders, store } = await bootOrders();
    const first = await orders.once();
    expect(await orders.once()).toEqual(first);
    expect(await store.get('cmdx:idem:Orders.once')).toMatch(/^d:1:0:/);
  });

  it('from two methods of one name, the answer of whichever was first', async () => {
    const { orders, store } = await bootOrders();
    const first = await orders.named('1');
    expect(await orders.namesake('1')).toEqual(first);
    expect(await orders.replayed('1')).toMatchObject({ run: 2 });
    expect(await store.get('app:once:shipment:1')).toMatch(/^d:1:0:/);
  });
});

describe('How long is an answer remembered?', () => {
  it('for the ttl, to the millisecond; then the key is new', async () => {
    const { orders, clock, telemetry, store } = await bootOrders();
    await orders.brief('1');
    await clock.advance('9999ms');
    await expect(orders.brief('1')).resolves.toMatchObject({ run: 1 });
    await clock.advance('1ms');
    expect(await store.get('cmdx:idem:Orders.brief:1')).toBeUndefined();
    await expect(orders.brief('1')).resolves.toMatchObject({ run: 2 });
    expect(telemetry.of('idempotency_claimed').map(({ payload }) => payload.run)).toEqual([1, 1]);
  });

  it('from the end of the run on, however long that took', async () => {
    const { orders, clock } = await bootOrders();
    const first = orders.slow('1');
    await clock.advance('50s');
    orders.door.open();
    await first;
    await clock.advance('9999ms');
    await expect(orders.slow('1')).resolves.toMatchObject({ run: 1 });
    await clock.advance('1ms');
    await expect(orders.slow('1')).resolves.toMatchObject({ run: 2 });
  });

  it('by default for a day, and no duplicate prolongs it', async () => {
    const { orders, clock, store } = await bootOrders();
    const key = 'cmdx:idem:Orders.replayed:1';
    await orders.replayed('1');
    expect(await store.remainingTtl(key)).toBe(24 * 3_600);
    await clock.advance('5m');
    await expect(orders.replayed('1')).resolves.toMatchObject({ run: 1 });
    expect(await store.remainingTtl(key)).toBe(24 * 3_600 - 300);
  });
});

describe('When does the policy step aside?', () => {
  it('where a gate says so: it runs and writes nothing', async () => {
    const { orders, store, telemetry } = await bootOrders();
    await orders.gated('1', true);
    await orders.gated('1', false, true);
    expect(orders.runs).toBe(2);
    expect(await store.get('cmdx:idem:Orders.gated:1')).toBeUndefined();
    expect(telemetry.names).not.toContain('idempotency_claimed');
    await orders.gated('1');
    await orders.gated('1');
    expect(orders.runs).toBe(3);
    await orders.gated('1', true);
    expect(orders.runs).toBe(4);
  });

  it('when the store is down and onStoreError says run; otherwise the body does not run', async () => {
    class Down extends MemoryStore {
      override enter(): never {
        throw new StoreError('disconnected', 'down');
      }
    }
    const { orders, telemetry } = await bootOrders({ store: new Down() });
    await orders.tolerant('1');
    await orders.tolerant('1');
    expect(orders.runs).toBe(2);
    expect(telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual([
      { policy: 'idempotency', reason: 'store_error' },
      { policy: 'idempotency', reason: 'store_error' },
    ]);
    await expect(orders.replayed('1')).rejects.toMatchObject({
      code: 'store_unavailable',
      metadata: { policies: ['idempotency'], reason: 'disconnected' },
    });
    expect(orders.runs).toBe(2);
  });
});

describe('What is told of it?', () => {
  it('the claim before the body, the duplicate before the answer, with the facts of the refusal', async () => {
    const { orders, telemetry } = await bootOrders();
    await orders.replayed('1');
    expect(telemetry.names).toEqual(['task_started', 'idempotency_claimed', 'task_executed']);
    const idempotencyKey = 'cmdx:idem:Orders.replayed:1';
    const [claimed] = telemetry.of('idempotency_claimed');
    expect(claimed?.payload).toEqual({ idempotencyKey, run: 1 });
    telemetry.clear();
    await orders.replayed('1');
    expect(telemetry.names).toEqual(['task_started', 'idempotency_duplicate', 'task_executed']);
    expect(telemetry.of('idempotency_duplicate')[0]?.payload).toEqual({
      code: 'duplicate',
      onDuplicate: 'replay',
      replayable: true,
      idempotencyKey,
      run: 1,
      holder: claimed?.tid,
    });
  });
});
