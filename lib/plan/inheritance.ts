import type { Declarable } from '../policies/option-rules.js';
import type { MethodDeclaration, PolicyRecord, WrittenOptions } from './declaration.js';

/** What a policy comes to on one method. */
export interface Merged {
  /** The key or schema in effect. */
  readonly subject: unknown;
  /** Everything of that kind that was written, from the base to the leaf. */
  readonly subjects: readonly unknown[];
  readonly options: WrittenOptions;
}

/**
 * Merges the decorators of one policy, from the base class to the leaf: a new key replaces, options
 * merge one by one, `false` turns off, a later key or option turns on again, `()` changes nothing.
 *
 * @returns `undefined` when the policy is off
 */
export function mergeRecords(records: readonly PolicyRecord[]): Merged | undefined {
  let on = records.length > 0;
  const subjects: unknown[] = [];
  let options: WrittenOptions = {};
  for (const record of records) {
    if (record.form === 'off') on = false;
    if (record.form !== 'set') continue;
    on = true;
    if (record.subject !== undefined) subjects.push(record.subject);
    options = { ...options, ...record.options };
  }
  return on ? { subject: subjects.at(-1), subjects, options } : undefined;
}

/** What one decorator comes to on a method; `undefined` when it is off. */
export function mergedOf(declaration: MethodDeclaration, name: Declarable): Merged | undefined {
  return mergeRecords(declaration.records[name] ?? []);
}

/**
 * Whether calls are answered with an Observable: as the option says, else as the return type does.
 * A policy that is turned off changes nothing about what the method returns.
 */
export function isStream(declaration: MethodDeclaration): boolean {
  const written = Object.values(declaration.records)
    .flat()
    .flatMap((record) => (record.form === 'set' ? [record.options.stream] : []));
  return written.findLast((stream) => stream !== undefined) ?? declaration.returnsObservable;
}
