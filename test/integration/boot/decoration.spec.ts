import { describe, expect, it } from '@jest/globals';
import {
  input,
  LockWith,
  Named,
  OnTelemetry,
  RateLimit,
  type TelemetryEventName,
} from 'nestjs-cmdx';
import { definitionMessage } from '../../support/definition.js';

/** A decorator as plain JavaScript may apply it, to what TypeScript would refuse. */
type Loose = (...applied: unknown[]) => unknown;
const loose = (decorator: unknown): Loose => decorator as Loose;

const descriptorOf = (target: object, name: string): PropertyDescriptor | undefined =>
  Object.getOwnPropertyDescriptor(target, name);

class Accounts {
  static reconcileAll(): void {}
  static readonly limit = 5;
  async reconcile(): Promise<void> {}
  get balance(): number {
    return 0;
  }
  get open(): boolean {
    return true;
  }
  set open(_open: boolean) {}
}

describe('what may a policy decorator stand on?', () => {
  it.each([
    [
      'a static method',
      () => loose(LockWith('a'))(Accounts, 'reconcileAll', descriptorOf(Accounts, 'reconcileAll')),
      'Accounts.reconcileAll: @LockWith: expected a method of instances, got a static method',
    ],
    [
      'a static property',
      () => loose(LockWith('a'))(Accounts, 'limit', undefined),
      'Accounts.limit: @LockWith: expected a method of instances, got a static property',
    ],
    [
      'a property',
      () => loose(RateLimit({ max: 1, per: 1 }))(Accounts.prototype, 'name', undefined),
      'Accounts.name: @RateLimit: expected a method, got a property',
    ],
    [
      'a getter',
      () =>
        loose(LockWith('a'))(
          Accounts.prototype,
          'balance',
          descriptorOf(Accounts.prototype, 'balance'),
        ),
      'Accounts.balance: @LockWith: expected a method, got an accessor',
    ],
    [
      'an accessor',
      () =>
        loose(LockWith('a'))(Accounts.prototype, 'open', descriptorOf(Accounts.prototype, 'open')),
      'Accounts.open: @LockWith: expected a method, got an accessor',
    ],
    [
      'a parameter',
      () => loose(LockWith('a'))(Accounts.prototype, 'reconcile', 0),
      'Accounts.reconcile: @LockWith: expected a method, got a parameter',
    ],
    [
      'a parameter of the constructor',
      () => loose(LockWith('a'))(Accounts, undefined, 0),
      'Accounts: @LockWith: expected a class or a method, got a parameter of the constructor',
    ],
  ])('not on %s', (_what, define, expected) => {
    expect(definitionMessage(define)).toBe(expected);
  });

  it.each([
    ['a method', { kind: 'method', name: 'reconcile' }, 'reconcile'],
    ['a class', { kind: 'class', name: 'Accounts' }, 'Accounts'],
    ['a field', { kind: 'field', name: Symbol('secret') }, 'secret'],
  ])('not on %s as a decorator of the ECMAScript proposal', (_what, context, name) => {
    for (const decorator of [LockWith('a'), RateLimit({ max: 1, per: 1 })]) {
      expect(definitionMessage(() => loose(decorator)(() => undefined, context))).toMatch(
        new RegExp(
          `^@(LockWith|RateLimit): expected TypeScript's experimentalDecorators.* on ${name}$`,
        ),
      );
    }
  });
});

describe('how may it be written?', () => {
  it.each([
    ['a number', [5], '(5)'],
    ['true', [true], '(true)'],
    ['null', [null], '(null)'],
    ['an array', [['a']], '(an array of 1)'],
    ['a date', [new Date()], '(an object (Date))'],
    ['two lists of options', [{ ttl: 5 }, { wait: 5 }], '(an object (Object), an object (Object))'],
    ['a key and no options', ['a', 5], '("a", 5)'],
    ['a key and null', ['a', null], '("a", null)'],
    ['false and options', [false, { ttl: 5 }], '(false, an object (Object))'],
    ['a key that is undefined', [undefined], '(undefined)'],
    ['the same, and options', [undefined, { ttl: 5 }], '(undefined, an object (Object))'],
  ])('not with %s', (_what, written, shown) => {
    const decorate = (): unknown =>
      loose(loose(LockWith)(...written))(
        Accounts.prototype,
        'reconcile',
        descriptorOf(Accounts.prototype, 'reconcile'),
      );
    expect(definitionMessage(decorate)).toBe(
      `Accounts.reconcile: @LockWith: expected (key, options), (key), (options), (false) or (), got ${shown}`,
    );
  });

  it.each([
    ['ttl', Number.NaN, 'more than zero seconds', 'NaN'],
    ['ttl', Infinity, 'more than zero seconds', 'Infinity'],
    ['ttl', -5, 'more than zero seconds', '-5'],
    ['ttl', 0, 'more than zero seconds', '0'],
    ['ttl', '5 minutes', 'more than zero seconds', '"5 minutes"'],
    ['wait', -1, 'zero or more seconds', '-1'],
    ['name', 'a:b', 'a non-empty string without a ":"', '"a:b"'],
    ['onBusy', 'wait', "'fail' or 'skip'", '"wait"'],
    ['if', 1, 'a boolean, the name of a method, a function or an object with call()', '1'],
  ])('@LockWith: not with the option %s: %p', (option, value, expected, got) => {
    const options = { [option]: value };
    expect(defineWith(loose(LockWith)('a', options))).toMatch(
      message(`Accounts.reconcile: @LockWith option "${option}": expected ${expected}`, got),
    );
    expect(definitionMessage(() => loose(loose(LockWith)(options))(Accounts))).toMatch(
      message(`Accounts: @LockWith option "${option}": expected ${expected}`, got),
    );
  });

  it.each([
    ['max', Number.NaN, 'a whole number from 0', 'NaN'],
    ['max', Infinity, 'a whole number from 0', 'Infinity'],
    ['max', -1, 'a whole number from 0', '-1'],
    ['per', 0, 'more than zero seconds', '0'],
    ['per', Number.NaN, 'more than zero seconds', 'NaN'],
    ['cost', 0, 'a number above 0', '0'],
    ['limiter', 5, 'the name of a limiter or a function', '5'],
  ])('@RateLimit: not with the option %s: %p', (option, value, expected, got) => {
    expect(defineWith(loose(RateLimit)({ max: 1, per: 1, [option]: value }))).toMatch(
      message(`Accounts.reconcile: @RateLimit option "${option}": expected ${expected}`, got),
    );
  });

  it('not with an option that there is none of; those that there are get listed', () => {
    expect(defineWith(loose(LockWith)('a', { tll: 5 }))).toBe(
      'Accounts.reconcile: @LockWith: unknown option "tll"; expected one of if, unless, namespace, name, onBlank, onStoreError, stream, ttl, wait, onBusy',
    );
    expect(defineWith(loose(RateLimit)({ max: 1, per: 1, onBusy: 'skip' }))).toContain(
      'unknown option "onBusy"; expected one of ',
    );
  });
});

describe('what else is said where it is written?', () => {
  it('@Named without a name, on a constructor, on a static method', () => {
    const apply = (name: string, target: object, method: string | undefined) => () =>
      loose(Named(name))(target, method, 0);
    expect(definitionMessage(apply('', Accounts.prototype, 'reconcile'))).toBe(
      '@Named: expected a non-empty string, got ""',
    );
    expect(definitionMessage(apply('id', Accounts, undefined))).toBe(
      "@Named('id'): expected a parameter of a method, got one of a constructor",
    );
    expect(definitionMessage(apply('id', Accounts, 'reconcileAll'))).toBe(
      "Accounts.reconcileAll: @Named('id'): expected a method of instances, got a static method",
    );
  });

  it('@OnTelemetry for an event that there is none of', () => {
    const decorate = (): unknown =>
      loose(OnTelemetry('lock_gone' as TelemetryEventName))(Accounts.prototype, 'reconcile', {});
    expect(definitionMessage(decorate)).toMatch(
      /^Accounts\.reconcile: @OnTelemetry: expected one of .*lock_busy.*; got "lock_gone"$/,
    );
  });

  it('input() without a name', () => {
    expect(definitionMessage(() => input(''))).toContain('got ""');
  });
});

function defineWith(decorator: unknown): string {
  const descriptor = descriptorOf(Accounts.prototype, 'reconcile');
  return definitionMessage(() => loose(decorator)(Accounts.prototype, 'reconcile', descriptor));
}

function message(start: string, got: string): RegExp {
  const [from, to] = [start, `got ${got}`].map((text) =>
    text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'),
  );
  return new RegExp(`^${from}.*${to}$`);
}
