import { DefinitionError, show } from '../errors/definition.error.js';
import { isKeySpec } from '../keys/key-resolver.js';
import { type AnyClass, taskName } from '../metadata/method-name.js';
import { addPolicyRecord } from '../metadata/policy-records.js';
import type { PolicyRecord } from '../plan/declaration.js';
import { isErrorSelection } from '../policies/error-matcher.js';
import { isSchema } from '../policies/schema.js';
import { checkOptions, type Declarable, DECORATOR_NAMES } from '../policies/option-rules.js';
import { isRowTarget } from '../row-lock/target.js';
import { assertLegacyDecorator, guardHandlers, guardMethod } from './method-wrapper.js';

/** What a policy decorator was called with. */
export type PolicyArguments = readonly unknown[];

/** The decorator of a policy: it records what was written and wraps, nothing else. */
export function policyDecorator(policy: Declarable, written: PolicyArguments) {
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
      if (SUBJECTS[policy] === 'schema') {
        throw new DefinitionError(`${site}: expected a method, got a class`);
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

/** Reads `()`, `(false)`, `(options)`, `(subject)` and `(subject, options)`. */
function toRecord(policy: Declarable, written: PolicyArguments, site: string): PolicyRecord {
  const [first, second] = written;
  if (first === false && second === undefined) return { form: 'off' };
  if (written.length === 0) return { form: 'inherit' };
  const kind = SUBJECTS[policy];
  const hasSubject = isSubject(policy, written);
  const size = kind === 'row' ? 2 : 1;
  const [options = hasSubject ? {} : undefined, ...rest] = hasSubject
    ? written.slice(size)
    : written;
  const takesOptions = kind !== 'schema' || written.length <= size;
  const sound = takesOptions && isOptions(options) && rest.every((each) => each === undefined);
  if (!sound || (kind === 'schema' && !hasSubject)) {
    throw new DefinitionError(
      `${site}: expected ${formsOf(policy)}, (false) or (), got (${written.map(show).join(', ')})`,
    );
  }
  checkOptions(policy, options, site);
  const definite = Object.entries(options).filter(([, value]) => value !== undefined);
  return {
    form: 'set',
    ...(hasSubject && { subject: kind === 'row' ? { target: first, id: second } : first }),
    options: Object.freeze(Object.fromEntries(definite)),
  };
}

/** What each decorator is about: its first argument, or of a row its first two. */
const SUBJECTS: Readonly<Record<Declarable, 'key' | 'errors' | 'row' | 'schema'>> = {
  rateLimit: 'key',
  circuitBreaker: 'key',
  lock: 'key',
  idempotency: 'key',
  retry: 'errors',
  rowLock: 'row',
  inputSchema: 'schema',
  outputSchema: 'schema',
};

const FORMS = {
  key: '(key, options), (key), (options)',
  errors: '(errors, options), (errors), (options)',
  row: '(table, id, options), (table, id), (options)',
  schema: '(schema)',
} as const;

function formsOf(policy: Declarable): string {
  const forms = FORMS[SUBJECTS[policy]];
  return policy === 'inputSchema' ? `${forms}, ([first, undefined, third])` : forms;
}

function isSubject(policy: Declarable, [value, second]: PolicyArguments): boolean {
  switch (SUBJECTS[policy]) {
    case 'key':
      return isKeySpec(value);
    case 'errors':
      return isErrorSelection(value);
    case 'row':
      return isRowTarget(value) && isKeySpec(second);
    case 'schema':
      return isSchema(value) || (policy === 'inputSchema' && isSchemaList(value));
  }
}

/** One schema per argument, at least one; `undefined` where one is taken as it is. */
function isSchemaList(value: unknown): boolean {
  if (!Array.isArray(value)) return false;
  return value.some(isSchema) && value.every((each) => each === undefined || isSchema(each));
}

function isOptions(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
