import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import type { PolicyRecord } from '../../../lib/plan/declaration.js';
import { mergeRecords } from '../../../lib/plan/inheritance.js';

const off: PolicyRecord = { form: 'off' };
const inherit: PolicyRecord = { form: 'inherit' };
const key = (text: string): PolicyRecord => ({ form: 'set', subject: text, options: {} });
const options = (written: object): PolicyRecord => ({ form: 'set', options: written });

describe('what do the decorators of a policy come to?', () => {
  it('nothing written is no policy', () => {
    expect(mergeRecords([])).toBeUndefined();
  });

  it('() alone is the policy with our defaults', () => {
    expect(mergeRecords([inherit])).toEqual({ subjects: [], options: {} });
  });

  it('a new key replaces, options merge one by one', () => {
    const merged = mergeRecords([
      { form: 'set', subject: 'base', options: { ttl: 10, wait: 1 } },
      options({ ttl: 20 }),
      inherit,
      key('leaf'),
    ]);
    expect(merged).toMatchObject({ subject: 'leaf', options: { ttl: 20, wait: 1 } });
  });

  it('what adds up instead of replacing is there from the base to the leaf', () => {
    const merged = mergeRecords([key('base'), options({ limit: 1 }), off, key('leaf'), inherit]);
    expect(merged?.subjects).toEqual(['base', 'leaf']);
  });

  it('false turns off, and () does not turn on again', () => {
    expect(mergeRecords([key('base'), off])).toBeUndefined();
    expect(mergeRecords([key('base'), off, inherit])).toBeUndefined();
    expect(mergeRecords([off])).toBeUndefined();
  });

  it('a later key or option does', () => {
    expect(mergeRecords([key('base'), off, options({ ttl: 5 })])).toMatchObject({
      subject: 'base',
      options: { ttl: 5 },
    });
    expect(mergeRecords([off, key('leaf')])).toEqual({
      subject: 'leaf',
      subjects: ['leaf'],
      options: {},
    });
  });

  it('never changes a record', () => {
    const record = fc.oneof(
      fc.constant(off),
      fc.constant(inherit),
      fc.string().map(key),
      fc.dictionary(fc.constantFrom('ttl', 'wait', 'name'), fc.nat()).map(options),
    );
    fc.assert(
      fc.property(fc.array(record), (records) => {
        const before = JSON.stringify(records);
        const merged = mergeRecords(records);
        expect(JSON.stringify(records)).toBe(before);
        expect(mergeRecords([...records, inherit])).toEqual(
          records.length === 0 ? { subjects: [], options: {} } : merged,
        );
        expect(mergeRecords([...records, off])).toBeUndefined();
      }),
    );
  });
});
