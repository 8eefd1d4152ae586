import type { Declarable } from '../policies/option-rules.js';
import type { PolicyRecord } from '../plan/declaration.js';
import type { Jitter } from '../policies/jitters.js';
import type { Limiter } from '../policies/limiters/limiter.js';
import type { TelemetryEventName } from '../telemetry/events.js';
import { type AnyClass, lineage } from './method-name.js';

/** The decorators of one policy, in the order in which they were applied. */
export type PolicyRecords = { readonly [P in Declarable]?: readonly PolicyRecord[] };

/** What was written on one class itself: nothing inherited, nothing merged. */
interface ClassRecords {
  class: PolicyRecords;
  readonly methods: Map<PropertyKey, PolicyRecords>;
  readonly limiters: Map<string, Limiter>;
  readonly jitters: Map<string, Jitter>;
  readonly names: Map<PropertyKey, Map<string, number[]>>;
  readonly lockedRows: Map<PropertyKey, number>;
  readonly subscriptions: { readonly event: TelemetryEventName; readonly method: PropertyKey }[];
}

const RECORDS = Symbol.for('cmdx:records');

/** Adds a decorator to the class, or to a method of it. The records of a base class are never touched. */
export function addPolicyRecord(
  target: AnyClass,
  method: PropertyKey | undefined,
  policy: Declarable,
  record: PolicyRecord,
): void {
  const own = ownRecords(target);
  const before = method === undefined ? own.class : (own.methods.get(method) ?? {});
  const after = { ...before, [policy]: [...(before[policy] ?? []), Object.freeze(record)] };
  if (method === undefined) own.class = after;
  else own.methods.set(method, after);
}

/** What one class itself says about a policy, for the class and for a method. */
export function policyRecordsOf(
  target: AnyClass,
  method: PropertyKey,
  policy: Declarable,
): { readonly class: readonly PolicyRecord[]; readonly method: readonly PolicyRecord[] } {
  const own = peek(target);
  return {
    class: own?.class[policy] ?? [],
    method: own?.methods.get(method)?.[policy] ?? [],
  };
}

/** Policies that the class or a base of it carries as a class decorator. */
export function classPolicies(target: AnyClass): ReadonlySet<Declarable> {
  return new Set(
    lineage(target).flatMap((each) => Object.keys(peek(each)?.class ?? {}) as Declarable[]),
  );
}

/**
 * Methods that carry one of our decorators, on the class or on a base of it: a `@LockedRow` alone, too,
 * so that it is found to miss its row lock.
 */
export function decoratedMethods(target: AnyClass): ReadonlySet<PropertyKey> {
  const records = lineage(target).flatMap((each) => peek(each) ?? []);
  return new Set(
    records.flatMap(({ methods, lockedRows }) => [...methods.keys(), ...lockedRows.keys()]),
  );
}

/** Whether the class or a base of it carries any of our policy decorators. */
export function isDecorated(target: AnyClass): boolean {
  return decoratedMethods(target).size > 0 || classPolicies(target).size > 0;
}

export function addLimiter(target: AnyClass, name: string, limiter: Limiter): void {
  ownRecords(target).limiters.set(name, limiter);
}

/** The limiters registered on the class and its bases; the leaf's win. */
export function limitersOf(target: AnyClass): ReadonlyMap<string, Limiter> {
  return new Map(lineage(target).flatMap((each) => [...(peek(each)?.limiters ?? [])]));
}

export function addJitter(target: AnyClass, name: string, jitter: Jitter): void {
  ownRecords(target).jitters.set(name, jitter);
}

/** The jitters registered on the class and its bases; the leaf's win. */
export function jittersOf(target: AnyClass): ReadonlyMap<string, Jitter> {
  return new Map(lineage(target).flatMap((each) => [...(peek(each)?.jitters ?? [])]));
}

export function addParameterName(
  target: AnyClass,
  method: PropertyKey,
  name: string,
  position: number,
): void {
  const { names } = ownRecords(target);
  const ofMethod = names.get(method) ?? new Map<string, number[]>();
  names.set(method, ofMethod.set(name, [...(ofMethod.get(name) ?? []), position]));
}

/** The `@Named` parameters of the method, from the nearest class that names any. */
export function parameterNamesOf(
  target: AnyClass,
  method: PropertyKey,
): ReadonlyMap<string, readonly number[]> {
  const nearest = lineage(target).findLast((each) => peek(each)?.names.has(method));
  return (nearest && peek(nearest)?.names.get(method)) ?? new Map();
}

export function addLockedRow(target: AnyClass, method: PropertyKey, position: number): void {
  ownRecords(target).lockedRows.set(method, position);
}

/** The position of the method's `@LockedRow` parameter, from the nearest class that has one. */
export function lockedRowOf(target: AnyClass, method: PropertyKey): number | undefined {
  const nearest = lineage(target).findLast((each) => peek(each)?.lockedRows.has(method));
  return nearest && peek(nearest)?.lockedRows.get(method);
}

export function addSubscription(
  target: AnyClass,
  event: TelemetryEventName,
  method: PropertyKey,
): void {
  ownRecords(target).subscriptions.push({ event, method });
}

/** The `@OnTelemetry` methods of the class and its bases. */
export function subscriptionsOf(
  target: AnyClass,
): readonly { readonly event: TelemetryEventName; readonly method: PropertyKey }[] {
  return lineage(target).flatMap((each) => peek(each)?.subscriptions ?? []);
}

function peek(target: AnyClass): ClassRecords | undefined {
  return Reflect.getOwnMetadata(RECORDS, target) as ClassRecords | undefined;
}

function ownRecords(target: AnyClass): ClassRecords {
  const found = peek(target);
  if (found) return found;
  const records: ClassRecords = {
    class: {},
    methods: new Map(),
    limiters: new Map(),
    jitters: new Map(),
    names: new Map(),
    lockedRows: new Map(),
    subscriptions: [],
  };
  Reflect.defineMetadata(RECORDS, records, target);
  return records;
}
