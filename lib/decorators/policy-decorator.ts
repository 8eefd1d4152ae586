import { DefinitionError, show } from '../errors/definition.error.js';
import type { PolicyName } from '../errors/refusals.js';
import { isKeySpec, type KeySpec } from '../keys/key-resolver.js';
import { type AnyClass, taskName } from '../metadata/method-name.js';
import { addPolicyRecord } from '../metadata/policy-records.js';
import type { PolicyRecord } from '../plan/declaration.js';
import { checkOptions, DECORATOR_NAMES } from '../policies/option-rules.js';
import { assertLegacyDecorator, guardHandlers, guardMethod } from './method-wrapper.js';

/** What a policy decorator was called with. */
export type PolicyArguments = readonly unknown[];

/** The decorator of a policy: it records what was written and wraps, nothing else. */
export function policyDecorator(policy: PolicyName, written: PolicyArguments) {
  const decorator = DECORATOR_NAMES[policy];
  return (
    target: object,
    method?: PropertyKey,
    descriptor?: PropertyDescriptor,
  ): PropertyDescriptor | void => {
    assertLegacyDecorator(method, decorator);
    if (method === undefined) {
      const site = `${(target as AnyClass).name}: ${decorator}`;
      if (descriptor !== undefined) {
        throw new DefinitionError(
          `${site}: expected a class or a method, got a parameter of the constructor`,
        );
      }
      addPolicyRecord(target as AnyClass, undefined, policy, toRecord(policy, written, site));
      guardHandlers(target as AnyClass);
      return;
    }
    const guarded = guardMethod(target, method, descriptor, decorator);
    const owner = target.constructor as AnyClass;
    const site = `${taskName(owner, method)}: ${decorator}`;
    addPolicyRecord(owner, method, policy, toRecord(policy, written, site));
    return guarded;
  };
}

/** Reads `()`, `(false)`, `(options)`, `(key)` and `(key, options)`. */
function toRecord(policy: PolicyName, written: PolicyArguments, site: string): PolicyRecord {
  const [first, second] = written;
  if (first === false && second === undefined) return { form: 'off' };
  if (written.length === 0) return { form: 'inherit' };
  const hasKey = isKeySpec(first);
  const options = hasKey ? (second ?? {}) : first;
  // A key that is undefined is one that has not been loaded yet: two files import each other.
  if (!isOptions(options) || second === null || (!hasKey && second !== undefined)) {
    throw new DefinitionError(
      `${site}: expected (key, options), (key), (options), (false) or (), got (${written.map(show).join(', ')})`,
    );
  }
  checkOptions(policy, options, site);
  const definite = Object.entries(options).filter(([, value]) => value !== undefined);
  return {
    form: 'set',
    ...(hasKey && { key: first as KeySpec }),
    options: Object.freeze(Object.fromEntries(definite)),
  };
}

function isOptions(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
