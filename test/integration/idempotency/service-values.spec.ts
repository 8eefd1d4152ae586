import { Readable } from 'node:stream';
import { inspect, isDeepStrictEqual } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { Injectable, Logger, StreamableFile } from '@nestjs/common';
import { arg, DuplicateError, IdempotentBy } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';

closeApplicationsAfterEach();
let warnings: string[];
beforeEach(() => {
  warnings = [];
  jest.spyOn(Logger.prototype, 'warn').mockImplementation((line: unknown) => {
    warnings.push(String(line));
  });
});
afterEach(() => void jest.restoreAllMocks());

type Make = () => unknown;

@Injectable()
class Answers {
  runs = 0;

  @IdempotentBy(arg(0))
  async give(_id: string, make: Make): Promise<unknown> {
    this.runs += 1;
    return make();
  }
}

class Money {
  constructor(readonly cents: number) {}
}

class Ledger extends Map<string, number> {}

class Pixels extends Uint8Array {}

function circular(): object {
  const order: Record<string, unknown> = { id: 1, lines: [] };
  order['self'] = order;
  (order['lines'] as unknown[]).push({ order });
  return order;
}

function twice(): object {
  const line = { a: 1 };
  return [line, line];
}

function nested(levels: number): object {
  let value: object = {};
  for (let level = 0; level < levels; level++) value = { value };
  return value;
}

const KEPT: readonly (readonly [string, Make])[] = [
  ['undefined', () => undefined],
  ['null', () => null],
  ['false, zero and the empty text', () => [false, 0, '']],
  ['a text with every kind of character', () => '"\'\\\n\0<!--</script>\u2028\ud800 €😀:%'],
  ['a Date', () => new Date(1_234_567_890_123)],
  ['a bigint', () => 2n ** 80n],
  ['a Buffer', () => Buffer.from([0, 1, 127, 128, 255])],
  ['an empty Buffer', () => Buffer.alloc(0)],
  [
    'a Map',
    () =>
      new Map<unknown, unknown>([
        ['a', 1],
        [{ b: 2n }, new Map([[null, undefined]])],
      ]),
  ],
  ['a Set', () => new Set<unknown>([1, '1', undefined, new Set([[1]])])],
  [
    'all of them, nested',
    () => ({
      at: new Date(0),
      lines: [{ price: 5n, tags: new Set(['a']), raw: Buffer.from('x') }, null, undefined],
      nothing: undefined,
      byId: new Map([[1, { at: new Date(1) }]]),
    }),
  ],
  ['NaN, -0, Infinity', () => [Number.NaN, -0, Infinity, -Infinity, { zero: -0 }]],
  [
    'typed arrays',
    () => [new Uint8Array([1, 2]), new Float64Array([-0, 1.5]), new BigInt64Array(2)],
  ],
  ['a view of a part of its bytes', () => new Uint16Array(new ArrayBuffer(8), 2, 2).fill(513)],
  ['a DataView and an ArrayBuffer', () => [new DataView(new ArrayBuffer(4)), new ArrayBuffer(3)]],
  ['a sparse array', () => Object.assign(Array(5), { 0: 1, 3: undefined })],
  ['an object without a prototype', () => Object.assign(Object.create(null), { a: { b: 1 } })],
  ['a key named __proto__', () => JSON.parse('{"__proto__":{"admin":true},"a":{"__proto__":1}}')],
  ['a circular object', circular],
  ['one object twice', twice],
  ['frozen', () => Object.freeze({ list: Object.freeze([1]) })],
];

/** What cannot be kept, and what a caller who gets it still makes of it. */
const NOT_KEPT: readonly (readonly [string, Make, (value: never) => unknown, unknown])[] = [
  ['an instance of a class', () => new Money(5), (money: Money) => money.cents, 5],
  ['one inside', () => ({ price: new Money(5) }), ({ price }: { price: Money }) => price.cents, 5],
  ['an error', () => new TypeError('no'), (error: Error) => error.message, 'no'],
  ['a Map of a class of its own', () => new Ledger([['a', 1]]), (map: Ledger) => map.get('a'), 1],
  ['bytes of a class of its own', () => new Pixels([7]), (pixels: Pixels) => pixels[0], 7],
  ['a RegExp', () => /a/g, (pattern: RegExp) => pattern.source, 'a'],
  ['a text in a box', () => Object('text'), (text: string) => text.slice(1), 'ext'],
  ['a function', () => () => 5, (call: () => number) => call(), 5],
  ['a function inside', () => ({ call: () => 5 }), ({ call }: { call(): number }) => call(), 5],
  ['a symbol', () => Symbol.for('a'), (symbol: symbol) => symbol.description, 'a'],
  ['a key that is a symbol', () => ({ [Symbol.for('a')]: 5 }), symbolKeys, 1],
  ['one on an array', () => Object.assign([1], { [Symbol.for('a')]: 5 }), symbolKeys, 1],
  ['an array with a further property', () => Object.assign([1], { total: 5 }), total, 5],
  ['a sparse one with one', () => Object.assign(Array(3), { total: 5 }), total, 5],
  ['a Map with one', () => Object.assign(new Map(), { total: 5 }), total, 5],
  ['a Set with one', () => Object.assign(new Set(), { total: 5 }), total, 5],
  ['a Date with one', () => Object.assign(new Date(), { total: 5 }), total, 5],
  ['a generator', () => numbers(), (each: Iterable<number>) => [...each], [1, 2]],
  ['an iterator', () => new Map([[1, 2]]).values(), (each: Iterable<number>) => [...each], [2]],
  [
    'one inside',
    () => ({ each: numbers() }),
    ({ each }: { each: Iterable<number> }) => [...each],
    [1, 2],
  ],
  ['what iterates by itself', iterable, (each: Iterable<number>) => [...each], [1, 2]],
  ['a stream', () => Readable.from(['a', 'b']), textOf, 'ab'],
  [
    'a StreamableFile',
    () => new StreamableFile(Buffer.from('ab')),
    (file: StreamableFile) => textOf(file.getStream()),
    'ab',
  ],
  [
    'one of a stream',
    () => new StreamableFile(Readable.from(['a', 'b'])),
    (file: StreamableFile) => textOf(file.getStream()),
    'ab',
  ],
  [
    'a web stream inside',
    () => ({ body: new Blob(['ab']).stream() }),
    ({ body }: { body: never }) => textOf(Readable.fromWeb(body)),
    'ab',
  ],
  [
    'a promise inside',
    () => ({ later: Promise.resolve(5) }),
    ({ later }: { later: unknown }) => later,
    5,
  ],
  ['1 MB', () => 'x'.repeat(1_000_000), (text: string) => text.length, 1_000_000],
  ['1 MB of bytes', () => Buffer.alloc(1_000_000, 1), (bytes: Buffer) => bytes.length, 1_000_000],
  [
    'what is nested too deeply',
    () => nested(50_000),
    (value: object) => Object.keys(value),
    ['value'],
  ],
  ['a property that throws', trap, (value: object) => Object.keys(value), ['a']],
];

function symbolKeys(value: object): number {
  return Object.getOwnPropertySymbols(value).length;
}

function total(value: { readonly total: number }): number {
  return value.total;
}

function* numbers(): Iterable<number> {
  yield 1;
  yield 2;
}

/** Used up by the first who iterates. */
function iterable(): object {
  const source = numbers();
  return Object.assign(Object.create({ [Symbol.iterator]: () => source }), {});
}

async function textOf(stream: Readable): Promise<string> {
  return Buffer.concat(
    await Readable.from(stream)
      .map((chunk) => Buffer.from(chunk))
      .toArray(),
  ).toString();
}

function trap(): object {
  return Object.defineProperty({}, 'a', {
    enumerable: true,
    get() {
      throw new Error('not yours');
    },
  });
}

describe('Which answers does a duplicate get as they were?', () => {
  it.each(KEPT)('%s', async (_name, make) => {
    const { get, cmdx, store } = await boot({ providers: [Answers] });
    const answers = get(Answers);
    const made = make();
    const first = await answers.give('1', () => made);
    expect(first).toBe(made);
    expect(isDeepStrictEqual(first, make())).toBe(true);
    const again = await cmdx.execute(() => answers.give('1', make));
    expect(again).toMatchObject({ status: 'skipped', metadata: { replayable: true } });
    expect([isDeepStrictEqual(again.value, first), inspect(again.value)]).toEqual([
      true,
      inspect(first),
    ]);
    expect(answers.runs).toBe(1);
    expect(warnings).toEqual([]);
    expect(await store.get('cmdx:idem:Answers.give:1')).toMatch(/^d:1:/);
  });
});

describe('What of an answer that cannot be kept?', () => {
  it.each(NOT_KEPT)(
    '%s: its caller gets it untouched, and it is never made again',
    async (_name, make, use, expected) => {
      const { get, telemetry, store } = await boot({ providers: [Answers] });
      const answers = get(Answers);
      const made = make();
      const first = await answers.give('1', () => made);
      expect(Object.is(first, made)).toBe(true);
      expect(await use(first as never)).toEqual(expected);
      for (const call of [1, 2]) {
        const error: unknown = await answers.give('1', make).catch((thrown: unknown) => thrown);
        expect([call, error]).toEqual([call, expect.any(DuplicateError)]);
        expect(error).toMatchObject({ replayable: false, metadata: { onDuplicate: 'replay' } });
      }
      expect(answers.runs).toBe(1);
      expect(telemetry.of('idempotency_duplicate')).toHaveLength(2);
      expect(await store.get('cmdx:idem:Answers.give:1')).toMatch(/^t:1:0:[^:]+::$/);
      expect(warnings).toEqual([
        expect.stringMatching(
          /^Answers\.give: @IdempotentBy: an answer could not be kept \(.+\), so duplicates of such calls get DuplicateError/,
        ),
      ]);
    },
  );

  it('that is told once, not at each call', async () => {
    const { get } = await boot({ providers: [Answers] });
    for (const id of ['1', '2', '3']) await get(Answers).give(id, () => new Money(5));
    await get(Answers).give('4', () => numbers());
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toContain('an instance of Money');
  });
});

describe('What of an answer reaches the store?', () => {
  it('its own bytes, and none of those that lie next to them in memory', async () => {
    const { get, store } = await boot({ providers: [Answers] });
    const memory = Buffer.from('a neighbour: its secret');
    const view = new Uint8Array(memory.buffer, memory.byteOffset, 1);
    await get(Answers).give('1', () => ({ view, bytes: memory.subarray(0, 1) }));
    const text = await store.get('cmdx:idem:Answers.give:1');
    expect(text).toContain(Buffer.from('a').toString('base64'));
    expect(text?.length).toBeLessThan(400);
    expect(await get(Answers).give('1', () => 'again')).toEqual({
      view: new Uint8Array([97]),
      bytes: Buffer.from('a'),
    });
  });
});
