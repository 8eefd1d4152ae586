import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { arg, currentInvocation, fail, IdempotentBy, resultOf, skip } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

const BOOM = Object.freeze(new Error('boom'));

type How = 'throw' | 'throw text' | 'skip' | 'fail' | 'reject later' | 'done';

@Injectable()
class Orders {
  runs: string[] = [];

  constructor(readonly door: Door) {}

  @IdempotentBy(arg(0))
  async ship(_id: string, how: How = 'done'): Promise<string | undefined> {
    this.runs.push(how);
    if (how === 'throw') throw BOOM;
    if (how === 'throw text') throw 'a text';
    if (how === 'skip') return skip('closed today', { code: 'closed' });
    if (how === 'fail') return fail('no such address', { code: 'address' });
    await this.door.pass();
    if (how === 'reject later') return Promise.reject(BOOM);
    return 'shipped';
  }
}

describe('What of a run that came to nothing?', () => {
  it.each([
    ['throw', 'failed'],
    ['throw text', 'failed'],
    ['skip', 'skipped'],
    ['fail', 'failed'],
    ['reject later', 'failed'],
  ] as const)('%s: the key is given back, and the next delivery runs', async (how, status) => {
    const { get, cmdx, store, telemetry } = await boot({ providers: [Door, Orders] });
    const orders = get(Orders);
    orders.door.open();
    expect(await cmdx.execute(() => orders.ship('1', how))).toMatchObject({ status });
    expect(await store.get('cmdx:idem:Orders.ship:1')).toBeUndefined();
    expect(await cmdx.execute(() => orders.ship('1', how))).toMatchObject({ status });
    await expect(orders.ship('1')).resolves.toBe('shipped');
    await expect(orders.ship('1', how)).resolves.toBe('shipped');
    expect(orders.runs).toEqual([how, how, 'done']);
    expect(telemetry.of('idempotency_claimed').map(({ payload }) => payload.run)).toEqual([
      1, 1, 1,
    ]);
  });

  it('its caller gets the very error, even a frozen one', async () => {
    const { get } = await boot({ providers: [Door, Orders] });
    get(Orders).door.open();
    expect(
      await get(Orders)
        .ship('1', 'throw')
        .catch((error: unknown) => error),
    ).toBe(BOOM);
    expect(
      await get(Orders)
        .ship('1', 'reject later')
        .catch((error: unknown) => error),
    ).toBe(BOOM);
    expect(resultOf(BOOM)).toMatchObject({ status: 'failed', task: 'Orders.ship', cause: BOOM });
    expect(
      await get(Orders)
        .ship('1', 'throw text')
        .catch((error: unknown) => error),
    ).toBe('a text');
    await expect(get(Orders).ship('1', 'skip')).resolves.toBeUndefined();
    await expect(get(Orders).ship('1', 'fail')).rejects.toMatchObject({ code: 'address' });
  });
});

@Injectable()
class Nesting {
  runs: string[] = [];

  constructor(readonly door: Door) {}

  @IdempotentBy(arg(0), { name: 'work' })
  async outer(key: string, inner: string): Promise<string> {
    this.runs.push(`outer ${key}`);
    return `${key}(${await this.inner(inner)})`;
  }

  @IdempotentBy(arg(0), { name: 'work' })
  async inner(key: string): Promise<string> {
    this.runs.push(`inner ${key}`);
    return key;
  }

  @IdempotentBy(arg(0), { name: 'work', onInProgress: 'wait' })
  async patientOuter(key: string): Promise<string> {
    return this.patientInner(key);
  }

  @IdempotentBy(arg(0), { name: 'work', onInProgress: 'wait' })
  async patientInner(key: string): Promise<string> {
    this.runs.push(`inner ${key}`);
    return key;
  }

  @IdempotentBy(arg(0), { name: 'work' })
  async outerThrows(key: string, inner: string): Promise<string> {
    await this.inner(inner);
    this.runs.push(`outer ${key}`);
    throw BOOM;
  }

  @IdempotentBy((left: number) => left)
  async countdown(left: number): Promise<number[]> {
    this.runs.push(`countdown ${left}`);
    return left === 0 ? [0] : [left, ...(await this.countdown(left - 1))];
  }

  @IdempotentBy(arg(0))
  async through(key: string, door: Door): Promise<string> {
    this.runs.push(`through ${key}`);
    await door.pass();
    return key;
  }

  @IdempotentBy(arg(0))
  async leavesBehind(key: string, later: () => Promise<unknown>): Promise<string> {
    void later();
    return key;
  }
}

describe('Whose record does a nested call touch?', () => {
  const bootNesting = async () => {
    const application = await boot({ providers: [Door, Nesting] });
    return { ...application, nesting: application.get(Nesting) };
  };

  it('its own: both are remembered, each with its answer', async () => {
    const { nesting } = await bootNesting();
    await expect(nesting.outer('a', 'b')).resolves.toBe('a(b)');
    await expect(nesting.inner('b')).resolves.toBe('b');
    await expect(nesting.outer('a', 'other')).resolves.toBe('a(b)');
    expect(nesting.runs).toEqual(['outer a', 'inner b']);
  });

  it('what is done stays done when the outer one throws', async () => {
    const { nesting, store } = await bootNesting();
    await expect(nesting.outerThrows('a', 'b')).rejects.toBe(BOOM);
    expect(await store.get('cmdx:idem:work:a')).toBeUndefined();
    await expect(nesting.outerThrows('a', 'b')).rejects.toBe(BOOM);
    expect(nesting.runs).toEqual(['inner b', 'outer a', 'outer a']);
  });

  it.each(['outer', 'patientOuter'] as const)(
    'with the key of its own chain it is in_progress at once (%s)',
    async (method) => {
      const { nesting, clock, store } = await bootNesting();
      await expect(nesting[method]('a', 'a')).rejects.toMatchObject({ code: 'in_progress' });
      expect(clock.now()).toBe(0);
      expect(nesting.runs).not.toContain('inner a');
      // That error ended the outer body: its key is free again.
      expect(await store.get('cmdx:idem:work:a')).toBeUndefined();
    },
  );

  it('recursion is one record a level', async () => {
    const { nesting } = await bootNesting();
    await expect(nesting.countdown(3)).resolves.toEqual([3, 2, 1, 0]);
    await expect(nesting.countdown(4)).resolves.toEqual([4, 3, 2, 1, 0]);
    expect(nesting.runs).toEqual([3, 2, 1, 0, 4].map((left) => `countdown ${left}`));
  });

  it('calls that interleave end their own', async () => {
    const { nesting, store } = await bootNesting();
    const doors = { a: new Door(), b: new Door() };
    const [a, b] = [nesting.through('a', doors.a), nesting.through('b', doors.b)];
    doors.b.open();
    await expect(b).resolves.toBe('b');
    expect(await store.get('cmdx:idem:Nesting.through:a')).toMatch(/^p:/);
    expect(await store.get('cmdx:idem:Nesting.through:b')).toMatch(/^d:/);
    await expect(nesting.through('a', doors.b)).rejects.toMatchObject({ code: 'in_progress' });
    doors.a.open();
    await expect(a).resolves.toBe('a');
    await expect(nesting.through('a', doors.a)).resolves.toBe('a');
  });

  it('one that its caller left behind too, after the caller has ended', async () => {
    const { nesting } = await bootNesting();
    const door = new Door();
    let later: Promise<string> | undefined;
    await nesting.leavesBehind('a', () => (later = nesting.through('b', door)));
    await expect(nesting.leavesBehind('a', async () => undefined)).resolves.toBe('a');
    await expect(nesting.through('b', door)).rejects.toMatchObject({ code: 'in_progress' });
    door.open();
    await expect(later).resolves.toBe('b');
    await expect(nesting.through('b', door)).resolves.toBe('b');
  });
});

class Importer {
  runs = 0;

  @IdempotentBy(arg(0))
  async run(file: string): Promise<string> {
    this.runs += 1;
    return `${file} by ${currentInvocation()?.task}`;
  }
}

@Injectable()
class CsvImporter extends Importer {
  override async run(file: string): Promise<string> {
    return `csv: ${await super.run(file)}`;
  }
}

@Injectable()
class XmlImporter extends Importer {}

describe('How many records has a method that calls its parent?', () => {
  it('one, with what the outermost returned', async () => {
    const { get, telemetry } = await boot({ providers: [CsvImporter] });
    await expect(get(CsvImporter).run('a')).resolves.toBe('csv: a by CsvImporter.run');
    await expect(get(CsvImporter).run('a')).resolves.toBe('csv: a by CsvImporter.run');
    expect(get(CsvImporter).runs).toBe(1);
    expect(
      telemetry.of('idempotency_claimed').map(({ payload }) => payload.idempotencyKey),
    ).toEqual(['cmdx:idem:CsvImporter.run:a']);
  });

  it('and each subclass has its own', async () => {
    const { get } = await boot({ providers: [CsvImporter, XmlImporter] });
    await get(CsvImporter).run('a');
    await expect(get(XmlImporter).run('a')).resolves.toBe('a by XmlImporter.run');
  });
});
