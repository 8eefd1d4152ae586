import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { claimText, parseClaim } from 'nestjs-cmdx';

const word = fc.string({ unit: 'binary' }).map((text) => text.replaceAll(':', ''));
const record = fc.record({
  state: fc.constantFrom('pending' as const, 'done' as const, 'tombstone' as const),
  run: fc.maxSafeNat(),
  leaseUntil: fc.maxSafeNat(),
  token: word,
  fingerprint: word,
  outcome: fc.string({ unit: 'binary' }),
});

describe('the record of a claim as one text', () => {
  it('is it read as it was written, whatever stands in it?', () => {
    fc.assert(
      fc.property(record, (written) => {
        expect(parseClaim(claimText(written))).toEqual(written);
      }),
    );
  });

  it('does an outcome keep its colons, newlines and NULs?', () => {
    const outcome = 'd:1:0:t:f:\r\n\u0000:{"a":1}\n';
    const written = { state: 'done', run: 2, leaseUntil: 0, token: 't', fingerprint: '' } as const;
    expect(parseClaim(claimText({ ...written, outcome }))?.outcome).toBe(outcome);
  });

  it.each([
    [''],
    ['token'],
    ['41'],
    ['300000:1700000000000000'],
    ['p:1:2:token:fingerprint'],
    ['x:1:2:token:fingerprint:outcome'],
    ['pd:1:2:token:fingerprint:outcome'],
    ['p::2:token:fingerprint:outcome'],
    ['p:-1:2:token:fingerprint:outcome'],
    ['p:1.5:2:token:fingerprint:outcome'],
    [' p:1:2:token:fingerprint:outcome'],
  ])('%j is none', (text) => {
    expect(parseClaim(text)).toBeUndefined();
  });
});
