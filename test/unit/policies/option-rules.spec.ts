import { describe, expect, it } from '@jest/globals';
import { isDefinitionError } from '../../../lib/errors/definition.error.js';
import { checkOptions } from '../../../lib/policies/option-rules.js';

const NUMBERS = [Number.NaN, Infinity, -Infinity, -1];
const NO_DURATION = [...NUMBERS, 0, '5', 'soon', true, null, {}, []];
const NO_GATE = [null, 0, 1, '', {}, [], Symbol('s')];
const NO_TEXT = ['', 1, null, true, {}];

const STREAM = ['true or false', ['yes', 1, null]] as const;
const NO_CALLABLE = [true, 5, null, {}, []];

const WRONG: Readonly<
  Record<
    'lock' | 'rateLimit' | 'idempotency',
    Record<string, readonly [string, readonly unknown[]]>
  >
> = {
  lock: {
    ttl: ['more than zero seconds', NO_DURATION],
    wait: ['zero or more seconds', [...NUMBERS, true, '', 'soon', {}]],
    onBusy: ["'fail' or 'skip'", ['wait', 'Skip', true, null]],
    stream: STREAM,
  },
  rateLimit: {
    max: ['a whole number from 0', [...NUMBERS, 1.5, 2 ** 53, '5', null, true]],
    per: ['more than zero seconds', NO_DURATION],
    cost: ['a number above 0', [...NUMBERS, 0, '1', null]],
    limiter: ['the name of a limiter or a function', ['', 5, null, {}]],
    onLimit: ["'fail' or 'skip'", ['wait', false]],
    stream: STREAM,
  },
  idempotency: {
    ttl: ['more than zero seconds', NO_DURATION],
    lease: ['more than zero seconds', [...NO_DURATION, '1x']],
    wait: ['more than zero seconds', [...NO_DURATION, false]],
    onDuplicate: ["'replay' or 'skip' or 'fail'", ['run', 'Skip', true, null]],
    onInProgress: ["'fail' or 'skip' or 'wait'", ['replay', 'run', false]],
    onAbandoned: ["'fail' or 'rerun'", ['skip', 'run', true]],
    fingerprint: [
      "'request', false, a function or an object with call()",
      [...NO_CALLABLE, 'body', ''],
    ],
    scope: ["'shared' or a key resolver", [...NO_CALLABLE, 'tenant', '', false]],
    codec: [
      'an object with encode() and decode()',
      [null, 'json', {}, { encode: String }, { encode: 1, decode: 2 }, () => ''],
    ],
    returns: ['a class', ['User', {}, null, 5, () => ({})]],
    maxBytes: ['a whole number from 0', [...NUMBERS, 1.5, 2 ** 53, '64', null]],
  },
};
const WRONG_EVERYWHERE: Record<string, readonly [string, readonly unknown[]]> = {
  if: ['a boolean, the name of a method, a function or an object with call()', NO_GATE],
  unless: ['a boolean, the name of a method, a function or an object with call()', NO_GATE],
  namespace: ['a non-empty string', NO_TEXT],
  name: ['a non-empty string without a ":"', [...NO_TEXT, 'a:b', ':']],
  onBlank: ["'bypass' or 'fail'", ['skip', true]],
  onStoreError: ["'fail' or 'run'", ['skip', 'bypass']],
};

const SITE = 'Accounts.reconcile: @LockWith';

describe.each(['lock', 'rateLimit', 'idempotency'] as const)(
  'which options does %s refuse?',
  (policy) => {
    const rules = { ...WRONG_EVERYWHERE, ...WRONG[policy] };
    const cases = Object.entries(rules).flatMap(([name, [expected, values]]) =>
      values.map((value) => [name, value, expected] as const),
    );

    it.each(cases)('%s: %p', (name, value, expected) => {
      const error = refused(() => checkOptions(policy, { [name]: value }, SITE));
      expect(error.message).toContain(`${SITE} option "${name}": expected ${expected}`);
      expect(error.message).toMatch(/got .+$/);
    });

    it('every name that is no option, with the list of those that are', () => {
      for (const name of ['tll', 'toString', '__proto__x', 'constructor', 'TTL', 'retries']) {
        const error = refused(() => checkOptions(policy, { [name]: 1 }, SITE));
        expect(error.message).toContain(`${SITE}: unknown option "${name}"; expected one of `);
        for (const known of Object.keys(rules)) expect(error.message).toContain(known);
      }
    });

    it('not one that is undefined: it is as if left out', () => {
      const everyOption = Object.fromEntries(Object.keys(rules).map((name) => [name, undefined]));
      expect(() => checkOptions(policy, everyOption, SITE)).not.toThrow();
    });
  },
);

describe('which options does it accept?', () => {
  it.each([
    [{ ttl: 30 }],
    [{ ttl: '30s', wait: '5s' }],
    [{ wait: 0 }],
    [{ wait: null }],
    [{ wait: false }],
    [{ wait: '0s' }],
    [{ onBusy: 'skip', name: 'account', namespace: 'app:lock' }],
    [{ if: true, unless: 'isPreview' }],
    [{ if: () => true, unless: { call: () => false } }],
    [{ onBlank: 'fail', onStoreError: 'run', stream: true }],
  ])('lock: %p', (written) => {
    expect(() => checkOptions('lock', written, SITE)).not.toThrow();
  });

  it.each([
    [{ max: 0, per: 60 }],
    [{ max: 5, per: '1m', cost: 0.5, limiter: 'leaky_bucket' }],
    [{ limiter: () => ({ admitted: true }) }],
  ])('rate limit: %p', (written) => {
    expect(() => checkOptions('rateLimit', written, SITE)).not.toThrow();
  });

  it.each([
    [{ ttl: '24h', lease: 0.5, wait: '250ms' }],
    [{ onDuplicate: 'skip', onInProgress: 'wait', onAbandoned: 'rerun' }],
    [{ fingerprint: false, scope: 'shared' }],
    [{ fingerprint: 'request', scope: () => 'ada' }],
    [{ fingerprint: () => 1, scope: { call: () => 1n } }],
    [{ fingerprint: { call: () => 1 } }],
    [{ codec: { encode: JSON.stringify, decode: JSON.parse }, returns: class User {} }],
    [{ maxBytes: 0, name: 'payment', namespace: 'app:idem' }],
  ])('idempotency: %p', (written) => {
    expect(() => checkOptions('idempotency', written, SITE)).not.toThrow();
  });
});

function refused(check: () => void): Error {
  try {
    check();
  } catch (error) {
    if (isDefinitionError(error)) return error;
    throw error;
  }
  throw new Error('expected a DefinitionError, got none');
}
