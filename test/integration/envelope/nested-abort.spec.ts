import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  CircuitBreaker,
  currentInvocation,
  IdempotencyRecords,
  IdempotentBy,
  LeaseLostError,
  LockWith,
  perTask,
  RetryOn,
  ShuttingDownError,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { until } from '../../support/time.js';

closeApplicationsAfterEach();

class Flaky extends Error {}

const signalOfCall = (): AbortSignal => currentInvocation()?.signal as AbortSignal;

/** Three calls, each inside the other, of which only the outermost holds a claim. */
@Injectable()
class Orders {
  readonly signals: Record<string, AbortSignal> = {};
  readonly begun: string[] = [];
  readonly door = new Door();
  readonly innerDoor = new Door();
  late: Promise<unknown> | undefined;
  attempts = 0;

  @IdempotentBy(arg(0), { lease: '3s' })
  async place(_id: string, inner: () => Promise<unknown>): Promise<unknown> {
    return inner();
  }

  @LockWith(perTask)
  async charge(): Promise<string> {
    return this.book();
  }

  @LockWith(perTask)
  async book(): Promise<string> {
    this.signals['book'] = signalOfCall();
    await this.door.pass();
    return 'booked';
  }

  /** Ends, and leaves a call behind that is still at work. */
  @LockWith(perTask)
  async leaveBehind(): Promise<void> {
    this.late = this.book();
  }

  @CircuitBreaker('bank', { minimumCalls: 1 })
  @RetryOn(Flaky, { limit: 5, delay: '1h' })
  async flaky(): Promise<never> {
    this.attempts += 1;
    throw new Flaky('down');
  }

  @LockWith(perTask)
  async cleanUp(): Promise<boolean> {
    this.begun.push('cleanUp');
    return signalOfCall().aborted;
  }
}

async function bootOrders() {
  const app = await boot({ providers: [Orders] }, { shutdownTimeout: '1s' });
  const loseClaim = async (): Promise<void> => {
    await app.get(IdempotencyRecords).forget('cmdx:idem:Orders.place:1');
    await app.clock.advance('2s');
  };
  return { ...app, orders: app.get(Orders), loseClaim };
}

describe('a claim is lost while nested calls are at work', () => {
  it('the signal of each of them aborts, for the same reason', async () => {
    const { orders, loseClaim } = await bootOrders();
    const call = orders.place('1', () => orders.charge());
    await until(() => orders.door.inside === 1, 'the body');
    expect(orders.signals['book']?.aborted).toBe(false);
    await loseClaim();
    expect(orders.signals['book']?.aborted).toBe(true);
    expect(orders.signals['book']?.reason).toBeInstanceOf(LeaseLostError);
    expect(orders.signals['book']?.reason).toMatchObject({ task: 'Orders.place' });
    orders.door.open();
    await expect(call).resolves.toBe('booked');
  });

  it('a call that was left behind by one that has ended hears of it too', async () => {
    const { orders, loseClaim } = await bootOrders();
    const call = orders.place('1', async () => {
      await orders.leaveBehind();
      await orders.innerDoor.pass();
    });
    await until(() => orders.innerDoor.inside === 1, 'the body');
    await loseClaim();
    expect(orders.signals['book']?.aborted).toBe(true);
    orders.innerDoor.open();
    orders.door.open();
    await Promise.all([call, orders.late]);
  });

  it('what ends before is not told', async () => {
    const { orders, loseClaim } = await bootOrders();
    orders.door.open();
    const call = orders.place('1', async () => {
      await orders.book();
      await orders.innerDoor.pass();
    });
    await until(() => orders.innerDoor.inside === 1, 'the body');
    await loseClaim();
    expect(orders.signals['book']?.aborted).toBe(false);
    orders.innerDoor.open();
    await call;
  });

  it('a nested call that sleeps before a repetition ends at once, and is no sample of its breaker', async () => {
    const { orders, loseClaim, telemetry } = await bootOrders();
    const call = orders.place('1', () => orders.flaky());
    const failed = call.catch((error: unknown) => error);
    while (telemetry.names.at(-1) !== 'task_retried') await new Promise(setImmediate);
    await loseClaim();
    await expect(failed).resolves.toBeInstanceOf(Flaky);
    expect(orders.attempts).toBe(1);
    expect(telemetry.names).not.toContain('circuit_opened');
  });

  it('a call that begins afterwards may clean up, and sees what has happened', async () => {
    const { orders, loseClaim } = await bootOrders();
    const call = orders.place('1', async () => {
      await orders.innerDoor.pass();
      return orders.cleanUp();
    });
    await until(() => orders.innerDoor.inside === 1, 'the body');
    await loseClaim();
    orders.innerDoor.open();
    await expect(call).resolves.toBe(true);
    expect(orders.begun).toEqual(['cleanUp']);
  });
});

describe('the application closes while nested calls are at work', () => {
  it('each of them is told on its own behalf', async () => {
    const { orders, close } = await bootOrders();
    const signals: AbortSignal[] = [];
    const call = orders.place('1', async () => {
      signals.push(signalOfCall());
      return orders.charge();
    });
    await until(() => orders.door.inside === 1, 'the body');
    const closed = close();
    await new Promise((resolve) => signals[0]?.addEventListener('abort', resolve, { once: true }));
    expect(orders.signals['book']?.reason).toBeInstanceOf(ShuttingDownError);
    expect(orders.signals['book']?.reason).toMatchObject({ task: 'Orders.book' });
    expect(signals[0]?.reason).toMatchObject({ task: 'Orders.place' });
    orders.door.open();
    await Promise.all([call, closed]);
  });
});
