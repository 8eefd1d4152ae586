import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import type { Invocation } from 'nestjs-cmdx';
import { compileFingerprint } from '../../../lib/keys/fingerprint.js';

/** What a fingerprint that is the first argument reads of a value. */
function read(value: unknown): unknown {
  const { read: digest } = compileFingerprint((...args: unknown[]) => args[0]);
  return digest({ args: [value], instance: {} } as unknown as Invocation);
}

/** The same value, with the names of every object in the opposite order. */
function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).toReversed();
  return Object.fromEntries(entries.map(([name, each]) => [name, reversed(each)]));
}

describe('when do two payloads have the same fingerprint?', () => {
  it('when they are the same JSON, in whatever order their names stand', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        if (value === null) return;
        const digest = read(value);
        expect(digest).toMatch(/^[\w-]{43}$/);
        expect(read(reversed(value))).toBe(digest);
        expect(read(JSON.parse(JSON.stringify(value)))).toBe(digest);
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    [{ amount: 5 }, { amount: '5' }],
    [{ amount: 5 }, { amount: 5, note: '' }],
    [{ amount: 5 }, { amount: null }],
    [
      [1, 2],
      [2, 1],
    ],
    [{ a: { b: 1 } }, { b: { a: 1 } }],
    ['true', true],
    [0, false],
    ['', 0],
    [{}, []],
    [new Date(0), new Date(1)],
    [5n, 6n],
  ])('not when they are %p and %p', (one, other) => {
    expect(read(one)).not.toBe(read(other));
  });

  it('when they differ in what JSON leaves out', () => {
    expect(read({ a: 1, b: undefined })).toBe(read({ a: 1 }));
    expect(read({ at: new Date(0) })).toBe(read({ at: '1970-01-01T00:00:00.000Z' }));
  });
});

describe('when is there none?', () => {
  it.each([[undefined], [null]])('for %p, now or later', async (value) => {
    expect(read(value)).toBeUndefined();
    await expect(read(Promise.resolve(value))).resolves.toBeUndefined();
  });

  it('for what is no JSON: that is an error, not a fingerprint that all of them share', () => {
    const circular: Record<string, unknown> = {};
    circular['self'] = circular;
    expect(() => read(circular)).toThrow(TypeError);
  });

  it("of 'request' outside a request of HTTP", () => {
    const { read: digest } = compileFingerprint('request');
    expect(digest({ args: [] } as unknown as Invocation)).toBeUndefined();
    const context = { getType: () => 'rpc' };
    expect(digest({ args: [], context } as unknown as Invocation)).toBeUndefined();
  });
});

describe('what does a fingerprint see?', () => {
  const invocation = { args: [1, 2], instance: { factor: 10 } } as unknown as Invocation;

  it('a function: the arguments, and the instance as this', () => {
    const sees = compileFingerprint(function (this: { factor: number }, a: number, b: number) {
      return [this.factor, a, b];
    });
    expect(sees.read(invocation)).toBe(read([10, 1, 2]));
    expect(sees.async).toBe(false);
  });

  it('an object: the invocation', () => {
    const sees = compileFingerprint({ call: ({ args }: Invocation) => args });
    expect(sees.read(invocation)).toBe(read([1, 2]));
  });

  it("'request': what was sent and where to, not the name of the class, which a mixin makes up", () => {
    const request = {
      method: 'POST',
      route: { path: '/payments' },
      params: {},
      query: {},
      body: {},
    };
    const digestIn = (task: string, sent: object): unknown => {
      const context = { getType: () => 'http', getArgByIndex: () => ({ ...request, ...sent }) };
      const call = { args: [], context, task } as unknown as Invocation;
      return compileFingerprint('request').read(call);
    };
    expect(digestIn('A1.create', {})).toBe(digestIn('B2.create', {}));
    for (const other of [{ method: 'PUT' }, { route: { path: '/refunds' } }, { body: { a: 1 } }]) {
      expect(digestIn('A1.create', other)).not.toBe(digestIn('A1.create', {}));
    }
  });

  it('that it will come later is known of async functions', async () => {
    const later = compileFingerprint(async (a: number) => a);
    expect(later.async).toBe(true);
    expect(compileFingerprint({ call: async () => 1 }).async).toBe(true);
    await expect(later.read(invocation)).resolves.toBe(read(1));
  });
});
