import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { describe, expect, it } from '@jest/globals';
import { arg, input, type Invocation } from 'nestjs-cmdx';
import { KeyProblem, type MethodShape } from '../../../lib/keys/key-resolver.js';

describe('where does input() look first?', () => {
  it('at the parameter that carries the name, whatever the objects beside it say', () => {
    const key = input('accountId').bind(shape({ names: { accountId: [0] } }));
    expect(key.call(called('acct_1', { accountId: 'chosen by the client' }))).toBe('acct_1');
  });

  it('a blank named parameter is blank: nothing else is asked', () => {
    const key = input('accountId').bind(shape({ names: { accountId: [0] } }));
    expect(key.call(called(undefined, { accountId: 'chosen by the client' }))).toBeUndefined();
  });

  it('then at the one object that has the property', () => {
    const key = input('email').bind(shape());
    expect(key.call(called('x', { email: 'a@b.c' }, { other: 1 }))).toBe('a@b.c');
    expect(key.call(called({ email: '' }))).toBe('');
    expect(key.call(called({ email: null }, { other: 1 }))).toBeNull();
  });

  it('a path goes on from there', () => {
    expect(
      input('order.id')
        .bind(shape())
        .call(called({ order: { id: 7 } })),
    ).toBe(7);
    const named = input('order.id').bind(shape({ names: { order: [1] } }));
    expect(named.call(called({ order: { id: 1 } }, { id: 2 }))).toBe(2);
    const whole = input('order.id').bind(shape({ names: { 'order.id': [0] } }));
    expect(whole.call(called('o1', { order: { id: 1 } }))).toBe('o1');
  });
});

describe('is a source ever chosen silently?', () => {
  it('no: two arguments that carry the property are refused', () => {
    const key = input('id').bind(shape());
    expect(() => key.call(called({ id: 1 }, { id: 1 }))).toThrow(
      new KeyProblem("input('id') is ambiguous: 2 arguments have such a property"),
    );
  });

  it('carrying means own and not undefined', () => {
    const key = input('id').bind(shape());
    expect(key.call(called({ id: undefined }, { id: 2 }))).toBe(2);
    expect(key.call(called(Object.create({ id: 1 }), { id: 2 }))).toBe(2);
  });

  it('inherited names are nobody’s input', () => {
    for (const name of ['constructor', '__proto__', 'toString', 'hasOwnProperty']) {
      expect(input(name).bind(shape()).call(called({}))).toBeUndefined();
    }
    expect(
      input('order.constructor.name')
        .bind(shape())
        .call(called({ order: {} })),
    ).toBeUndefined();
  });

  it('a request or a response is never searched, an adapter’s wrapper of one neither', () => {
    const request = Object.assign(new IncomingMessage(new Socket()), { id: 'r' });
    const response = Object.assign(new ServerResponse(request), { id: 's' });
    const key = input('id').bind(shape());
    expect(key.call(called(request, response, { raw: request, id: 'f' }, { id: 'mine' }))).toBe(
      'mine',
    );
    const byPosition = input('id').bind(shape({ unsearchable: new Set([0]) }));
    expect(byPosition.call(called({ id: 'next' }, { id: 'mine' }))).toBe('mine');
  });
});

describe('can a name nobody has pass unseen?', () => {
  it('not at boot, when every parameter is a primitive; the names there are get listed', () => {
    for (const types of [[], [String], [Number, Boolean], [Array], [BigInt, Symbol]]) {
      expect(() => input('x').bind(shape({ types, names: { account: [0] } }))).toThrow(
        /^Accounts\.reconcile: input\('x'\) can never have a value: .*the names there are: account\)/,
      );
    }
    expect(() => input('x').bind(shape({ types: [] }))).toThrow('no parameter has a name');
  });

  it('but it may have one when a parameter could be an object, or no types are known', () => {
    for (const types of [[Object], [String, class Dto {}], undefined]) {
      expect(() => input('x').bind(shape({ types }))).not.toThrow();
    }
  });

  it('not at a call, when every argument that is there is a primitive', () => {
    const key = input('x').bind(shape());
    for (const args of [['a'], [1, null], [undefined, true], [['a', 'b']]]) {
      expect(() => key.call(called(...args))).toThrow(KeyProblem);
    }
    expect(key.call(called())).toBeUndefined();
    expect(key.call(called(null, undefined))).toBeUndefined();
    expect(key.call(called('a', {}))).toBeUndefined();
    expect(key.call(called('a', () => undefined))).toBeUndefined();
  });

  it('two parameters named alike are an error at boot', () => {
    expect(() => input('id').bind(shape({ names: { id: [0, 2] } }))).toThrow(
      "Accounts.reconcile: input('id') is ambiguous: the parameters 0 and 2 are both named so",
    );
    expect(() => input('order.id').bind(shape({ names: { order: [0, 1] } }))).toThrow('ambiguous');
  });
});

describe('is an absent property told?', () => {
  it.each([
    ['input', input('email'), [{ mail: 'typo' }]],
    ['input path', input('order.id'), [{ order: {} }]],
    ['input path of a named parameter', input('named.id'), [{}]],
    ['arg path', arg(0, 'email'), [{ mail: 'typo' }]],
    ['arg path of nothing', arg(3, 'email'), [{ email: 'elsewhere' }]],
  ])('%s', (_form, key, args) => {
    const told: string[] = [];
    const bound = key.bind(
      shape({ names: { named: [0] }, warnOnce: (message) => told.push(message) }),
    );
    expect(bound.call(called(...args))).toBeUndefined();
    expect(told).toEqual([expect.stringMatching(/^Accounts\.reconcile: (?:input|arg)\(/)]);
  });

  it.each([
    ['blank', input('email'), [{ email: '' }]],
    ['null', input('order.id'), [{ order: { id: null } }]],
    ['blank by position', arg(0, 'email'), [{ email: '' }]],
    ['an argument left out', arg(1), ['a']],
  ])('a key that is there but %s is not', (_form, key, args) => {
    const told: string[] = [];
    const bound = key.bind(shape({ warnOnce: (message) => told.push(message) }));
    expect(bound.call(called(...args)) ?? '').toBe('');
    expect(told).toEqual([]);
  });
});

describe('what does arg() read?', () => {
  it('the argument at the position, or an own property of it', () => {
    const bound = (key: ReturnType<typeof arg>) => key.bind(shape());
    expect(bound(arg(1)).call(called('a', 'b'))).toBe('b');
    expect(bound(arg(0, 'order.id')).call(called({ order: { id: 5 } }))).toBe(5);
    expect(bound(arg(0, 'length')).call(called('text'))).toBeUndefined();
    expect(bound(arg(0, 'constructor')).call(called({}))).toBeUndefined();
  });

  it.each([[-1], [1.5], [Number.NaN], ['0']])('a position that is %p is refused', (index) => {
    expect(() => arg(index as number)).toThrow('arg(): expected a position from 0');
  });

  it('so are empty names', () => {
    expect(() => arg(0, '')).toThrow('arg(): expected a property path');
    expect(() => input('')).toThrow('input(): expected the name of an input, got ""');
  });
});

interface ShapeParts {
  readonly names?: Record<string, number[]>;
  readonly types?: readonly unknown[] | undefined;
  readonly unsearchable?: ReadonlySet<number>;
  readonly headers?: ReadonlySet<number>;
  readonly warnOnce?: (message: string) => void;
}

function shape(parts: ShapeParts = {}): MethodShape {
  return {
    task: 'Accounts.reconcile',
    names: new Map(Object.entries(parts.names ?? {})),
    unsearchable: parts.unsearchable ?? new Set(),
    headers: parts.headers ?? new Set(),
    types: 'types' in parts ? parts.types : [Object],
    warnOnce: parts.warnOnce ?? (() => undefined),
  };
}

function called(...args: unknown[]): Invocation {
  return { args } as unknown as Invocation;
}
