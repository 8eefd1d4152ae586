import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { arg, header, input, type Invocation, perTask, segment } from 'nestjs-cmdx';
import { KeyProblem } from '../../../lib/keys/key-resolver.js';
import { definitionMessage } from '../../support/definition.js';

describe('does segment`` keep its parts apart?', () => {
  it('escapes what separates them, and nothing else', () => {
    expect(read(segment`${arg(0)}:${arg(1)}`, 'a:b', '50%')).toBe('a%3Ab:50%25');
    expect(read(segment`tenant:${arg(0)}/${7}:${8n}:${'x:y'}`, 'a')).toBe('tenant:a/7:8:x%3Ay');
    expect(read(segment`just text`)).toBe('just text');
  });

  it('two different lists of parts never make the same key', () => {
    const part = fc.string({
      unit: fc.constantFrom(':', '%', 'a', '25', '3A', '%3A', '%25'),
      minLength: 1,
      maxLength: 5,
    });
    fc.assert(
      fc.property(part, part, part, part, (a, b, c, d) => {
        const key = segment`${arg(0)}:${arg(1)}`;
        return (read(key, a, b) === read(key, c, d)) === (a === c && b === d);
      }),
      { numRuns: 20_000 },
    );
    // The random lists seldom meet in one concatenation; these always do.
    fc.assert(
      fc.property(part, part, part, (a, b, c) => {
        const key = segment`${arg(0)}:${arg(1)}`;
        expect(read(key, `${a}:${b}`, c)).not.toBe(read(key, a, `${b}:${c}`));
      }),
    );
  });

  it.each([[null], [undefined], ['']])('a part that is %p makes the whole blank', (blank) => {
    expect(read(segment`${arg(0)}:${arg(1)}`, 'a', blank)).toBeUndefined();
    expect(read(segment`${arg(0)}:${arg(1)}`, blank, 'b')).toBeUndefined();
  });

  it('a part that is no key is no key', () => {
    expect(() => read(segment`${arg(0)}`, { id: 1 })).toThrow(KeyProblem);
  });

  it.each([
    ['a function', (id: string) => id, 'a function'],
    ['a resolver class', class Tenants {}, 'function Tenants'],
    ['perTask', perTask, 'an object (Object)'],
    ['an object', {}, 'an object (Object)'],
    ['a boolean', true, 'true'],
    ['NaN', Number.NaN, 'NaN'],
    ['an empty text', '', '""'],
    ['null', null, 'null'],
    ['what is not there', undefined, 'undefined'],
  ])('%s cannot be a part', (_what, part, shown) => {
    expect(definitionMessage(() => segment`tenant:${part as never}`)).toContain(
      `segment\`\`: expected parts that are texts, numbers or key resolvers such as input('x'), got ${shown}`,
    );
  });

  it('waits for parts that are promises', async () => {
    const later = { call: async (): Promise<string> => 'b:c' };
    await expect(read(segment`${arg(0)}:${later}`, 'a')).resolves.toBe('a:b%3Ac');
    const blank = { call: async (): Promise<undefined> => undefined };
    await expect(read(segment`${arg(0)}:${blank}`, 'a')).resolves.toBeUndefined();
  });

  it('is the request’s if one of its parts is', () => {
    expect(segment`${arg(0)}:${header('x-tenant')}`.fromRequest).toBe(true);
    expect(segment`${arg(0)}:x`.fromRequest).toBe(false);
  });

  it('its parts are checked against the method as if they stood alone', () => {
    const shape = {
      task: 'Accounts.reconcile',
      names: new Map(),
      unsearchable: new Set<number>(),
      headers: new Set<number>(),
      types: [String],
      warnOnce: () => undefined,
    };
    expect(() => segment`${input('accountId')}:x`.bind(shape)).toThrow(
      "Accounts.reconcile: input('accountId') can never have a value",
    );
  });
});

function read(key: ReturnType<typeof segment>, ...args: unknown[]): unknown {
  return key.call({ args } as unknown as Invocation);
}
