import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  currentInvocation,
  IdempotentBy,
  input,
  type Invocation,
  type KeyResolver,
  perTask,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { refuseUnhandledRejections } from '../../support/unhandled-rejections.js';

closeApplicationsAfterEach();
refuseUnhandledRejections();

@Injectable()
class TenantOfInstance implements KeyResolver {
  call({ instance }: Invocation): string | undefined {
    return (instance as Orders).tenant;
  }
}

@Injectable()
class Orders {
  runs = 0;
  tenant: string | undefined = 'acme';

  @IdempotentBy(arg(0))
  async plain(_id: unknown): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(arg(0), { onBlank: 'fail' })
  async demanding(_id: unknown): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(arg(1), { scope: (tenant: unknown) => tenant as string })
  async scoped(_tenant: unknown, _id: unknown): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(arg(1), { scope: async (tenant: string) => tenant, onBlank: 'fail' })
  async scopedLater(_tenant: string | undefined, _id: string): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(async (_tenant: string, id: string) => id, { scope: arg(0) })
  async keyLater(_tenant: string, _id: string): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(arg(0), { scope: TenantOfInstance })
  async scopedByClass(_id: string): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(arg(0), { scope: 'shared' })
  async shared(_id: string): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(perTask, { scope: arg(0) })
  async oncePerTenant(_tenant: string): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(input('id'), {
    scope: async () => {
      throw new Error('no tenant today');
    },
  })
  async troubled(_first: { id?: string }, _second: { id?: string }): Promise<number> {
    return this.#run();
  }

  #run(): number {
    this.runs += 1;
    return this.runs;
  }
}

async function bootOrders(options: Parameters<typeof boot>[1] = {}) {
  const application = await boot({ providers: [Orders, TenantOfInstance] }, options);
  return { ...application, orders: application.get(Orders) };
}

/** The keys of the claims so far, without what all of them begin with. */
function keys({ telemetry }: Awaited<ReturnType<typeof bootOrders>>): readonly string[] {
  return telemetry
    .of('idempotency_claimed')
    .map(({ payload }) => payload.idempotencyKey.replace('cmdx:idem:Orders.', ''));
}

describe('What is a blank key?', () => {
  it.each([[undefined], [null], ['']])(
    '%p: it runs each time and writes nothing',
    async (blank) => {
      const { orders, telemetry, store } = await bootOrders();
      expect([await orders.plain(blank), await orders.plain(blank)]).toEqual([1, 2]);
      expect(telemetry.of('policy_bypassed').map(({ payload }) => payload)).toEqual([
        { policy: 'idempotency', reason: 'blank' },
        { policy: 'idempotency', reason: 'blank' },
      ]);
      expect((store as unknown as { size: number }).size).toBe(0);
    },
  );

  it('with onBlank fail it is refused', async () => {
    const { orders } = await bootOrders();
    await expect(orders.demanding('')).rejects.toMatchObject({
      code: 'key_missing',
      metadata: { policy: 'idempotency' },
    });
    expect(orders.runs).toBe(0);
  });

  it.each([[{}], [Number.NaN], [true], [[]]])('%p is none, but a wrong one', async (wrong) => {
    const { orders } = await bootOrders();
    await expect(orders.plain(wrong)).rejects.toMatchObject({ code: 'key_invalid' });
    expect(orders.runs).toBe(0);
  });
});

describe('Whose is a key?', () => {
  it("its scope's: the same key of another is another", async () => {
    const application = await bootOrders();
    const { orders } = application;
    expect(await orders.scoped('a', '1')).toBe(1);
    expect(await orders.scoped('b', '1')).toBe(2);
    expect(await orders.scoped('a', '1')).toBe(1);
    expect(keys(application)).toEqual(['scoped:a:1', 'scoped:b:1']);
  });

  it('and none that looks like it, wherever the separator stands', async () => {
    const application = await bootOrders();
    const { orders } = application;
    const pairs = [
      ['a:b', 'c'],
      ['a', 'b:c'],
      ['a%3Ab', 'c'],
      ['a', 'b%3Ac'],
      [1, 2n],
    ];
    for (const [scope, id] of pairs) await orders.scoped(scope, id);
    expect(orders.runs).toBe(5);
    expect(keys(application)).toEqual([
      'scoped:a%3Ab:c',
      'scoped:a:b%3Ac',
      'scoped:a%253Ab:c',
      'scoped:a:b%253Ac',
      'scoped:1:2',
    ]);
  });

  it.each([[undefined], [null], ['']])(
    "nobody's, and so not everybody's, when the scope is blank (%p)",
    async (blank) => {
      const { orders, telemetry, store } = await bootOrders();
      expect([await orders.scoped(blank, '1'), await orders.scoped(blank, '1')]).toEqual([1, 2]);
      expect(telemetry.of('policy_bypassed')).toHaveLength(2);
      expect((store as unknown as { size: number }).size).toBe(0);
      await expect(orders.scopedLater(undefined, '1')).rejects.toMatchObject({
        code: 'key_missing',
      });
      expect(orders.runs).toBe(2);
    },
  );

  it('an object is no scope', async () => {
    const { orders } = await bootOrders();
    await expect(orders.scoped({ tenant: 'a' }, '1')).rejects.toMatchObject({
      code: 'key_invalid',
    });
    expect(orders.runs).toBe(0);
  });

  it.each(['scopedLater', 'keyLater'] as const)('known only later (%s)', async (method) => {
    const application = await bootOrders();
    const { orders } = application;
    expect(await orders[method]('a', '1')).toBe(1);
    expect(await orders[method]('a', '1')).toBe(1);
    expect(await orders[method]('b', '1')).toBe(2);
    expect(keys(application)).toEqual([`${method}:a:1`, `${method}:b:1`]);
  });

  it('told by an injectable class', async () => {
    const application = await bootOrders();
    const { orders } = application;
    await orders.scopedByClass('1');
    orders.tenant = 'other';
    await orders.scopedByClass('1');
    expect(keys(application)).toEqual(['scopedByClass:acme:1', 'scopedByClass:other:1']);
  });

  it("everybody's with 'shared', and no key reads like a scoped one", async () => {
    const application = await bootOrders();
    await application.orders.shared('a:1');
    expect(keys(application)).toEqual(['shared:a%3A1']);
  });

  it('of the whole task, once in each scope', async () => {
    const application = await bootOrders();
    const { orders } = application;
    for (const tenant of ['a', 'b', 'a']) await orders.oncePerTenant(tenant);
    expect(keys(application)).toEqual(['oncePerTenant:a:', 'oncePerTenant:b:']);
  });

  it("not the module's default scope's: that is for keys which demand one", async () => {
    const application = await bootOrders({
      defaults: { idempotency: { scope: () => 'default' } },
    });
    await application.orders.plain('1');
    await application.orders.oncePerTenant('a');
    expect(keys(application)).toEqual(['plain:1', 'oncePerTenant:a:']);
  });

  it('unknown when a promised scope fails, even after the key already has', async () => {
    const { orders } = await bootOrders();
    await expect(orders.troubled({ id: '1' }, {})).rejects.toThrow('no tenant today');
    // Two carriers of the name: the key fails at once, while the scope is still on its way.
    await expect(orders.troubled({ id: '1' }, { id: '2' })).rejects.toMatchObject({
      code: 'key_invalid',
    });
  });
});

interface Order {
  readonly id: string;
  amount?: number;
  note?: string | undefined;
  later?: boolean;
}

@Injectable()
class Payments {
  runs = 0;
  asked: string[] = [];

  @IdempotentBy(input('id'))
  async uncompared(_order: Order): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(input('id'), { fingerprint: false })
  async uncomparedByWish(_order: Order): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(input('id'), { fingerprint: (order: Order) => order })
  async compared(_order: Order, work?: () => Promise<void>): Promise<number> {
    await work?.();
    return this.#run();
  }

  @IdempotentBy(input('id'), { fingerprint: async (order: Order) => order.amount })
  async comparedLater(_order: Order): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(input('id'), { fingerprint: { call: ({ args }: Invocation) => args } })
  async comparedByObject(_order: Order): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(input('id'), { fingerprint: 'request' })
  async comparedByRequest(_order: Order): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(input('id'), {
    fingerprint() {
      throw new Error('no fingerprint today');
    },
  })
  async incomparable(_order: Order): Promise<number> {
    return this.#run();
  }

  @IdempotentBy(
    async function (this: Payments, order: Order) {
      this.asked.push('key');
      return order.id;
    },
    {
      async fingerprint(this: Payments, order: Order) {
        this.asked.push(`fingerprint in ${currentInvocation()?.task}`);
        return order.amount;
      },
    },
  )
  async changing(order: { id: string; amount?: number }): Promise<number> {
    order.id = 'changed';
    order.amount = 99;
    return this.#run();
  }

  #run(): number {
    this.runs += 1;
    return this.runs;
  }
}

describe('When is the same key another payload?', () => {
  const bootPayments = async () => {
    const application = await boot({ providers: [Payments] });
    return { ...application, payments: application.get(Payments) };
  };

  it.each(['uncompared', 'uncomparedByWish', 'comparedByRequest'] as const)(
    'never, where nothing is compared (%s)',
    async (method) => {
      const { payments } = await bootPayments();
      await payments[method]({ id: '1', amount: 5 });
      await expect(payments[method]({ id: '1', amount: 6 })).resolves.toBe(1);
    },
  );

  it.each(['compared', 'comparedLater', 'comparedByObject'] as const)(
    'when the fingerprint differs (%s)',
    async (method) => {
      const { payments, telemetry } = await bootPayments();
      await payments[method]({ id: '1', amount: 5 });
      await expect(payments[method]({ id: '1', amount: 5 })).resolves.toBe(1);
      const error: unknown = await payments[method]({ id: '1', amount: 6 }).catch(
        (thrown: unknown) => thrown,
      );
      expect(error).toMatchObject({
        code: 'payload_mismatch',
        status: 422,
        metadata: {
          code: 'payload_mismatch',
          idempotencyKey: `cmdx:idem:Payments.${method}:1`,
          run: 1,
          holder: telemetry.of('idempotency_claimed')[0]?.tid,
        },
      });
      expect(telemetry.of('idempotency_mismatch')[0]?.payload).toEqual(
        (error as { metadata: unknown }).metadata,
      );
      expect(payments.runs).toBe(1);
    },
  );

  it('not when only the names stand in another order, or one has no value', async () => {
    const { payments } = await bootPayments();
    await payments.compared({ id: '1', amount: 5 });
    await expect(payments.compared({ amount: 5, id: '1', note: undefined })).resolves.toBe(1);
  });

  it('also while the first is in flight: that is told before in_progress', async () => {
    const { payments } = await bootPayments();
    let end: () => void = () => undefined;
    const first = payments.compared({ id: '1', amount: 5 }, () => new Promise((go) => (end = go)));
    await expect(payments.compared({ id: '1', amount: 6 })).rejects.toMatchObject({
      code: 'payload_mismatch',
    });
    await expect(payments.compared({ id: '1', amount: 5 })).rejects.toMatchObject({
      code: 'in_progress',
    });
    end();
    await expect(first).resolves.toBe(1);
  });

  it('never, when one of the two has nothing to compare', async () => {
    const { payments } = await bootPayments();
    await payments.comparedLater({ id: '1' });
    await expect(payments.comparedLater({ id: '1', amount: 5 })).resolves.toBe(1);
    await payments.comparedLater({ id: '2', amount: 5 });
    await expect(payments.comparedLater({ id: '2' })).resolves.toBe(2);
  });

  it('unknown when it cannot be told: the call fails and claims nothing', async () => {
    const { payments, store } = await bootPayments();
    await expect(payments.incomparable({ id: '1' })).rejects.toThrow('no fingerprint today');
    const circular: Order & { self?: unknown } = { id: '2' };
    circular.self = circular;
    await expect(payments.compared(circular)).rejects.toBeInstanceOf(TypeError);
    expect(payments.runs).toBe(0);
    expect((store as unknown as { size: number }).size).toBe(0);
  });

  it('by what came in, asked once, whatever the body makes of its input', async () => {
    const { payments, telemetry } = await bootPayments();
    const order = { id: '1', amount: 5 };
    await payments.changing(order);
    expect(order).toEqual({ id: 'changed', amount: 99 });
    expect(payments.asked).toEqual(['key', 'fingerprint in Payments.changing']);
    await expect(payments.changing({ id: '1', amount: 5 })).resolves.toBe(1);
    await expect(payments.changing({ id: '1', amount: 99 })).rejects.toMatchObject({
      code: 'payload_mismatch',
    });
    expect(telemetry.of('idempotency_claimed').map(({ payload }) => payload)).toEqual([
      { idempotencyKey: 'cmdx:idem:Payments.changing:1', run: 1 },
    ]);
  });
});
