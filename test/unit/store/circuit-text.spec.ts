import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { type CircuitRecord, circuitText, parseCircuit } from 'nestjs-cmdx';

const whole = fc.maxSafeNat();
const record: fc.Arbitrary<CircuitRecord> = fc.record({
  state: fc.constantFrom('closed', 'open', 'half_open', 'forced_open', 'forced_closed'),
  epoch: whole,
  openUntil: whole,
  opens: whole,
  successes: whole,
  permits: fc.array(
    fc.record({
      token: fc.string({ unit: 'grapheme', minLength: 1 }).filter((text) => !/[,;]/.test(text)),
      deadline: whole,
    }),
    { maxLength: 4 },
  ),
  buckets: fc.array(fc.record({ slot: whole, calls: whole, failures: whole }), { maxLength: 4 }),
});

describe('the text of a breaker', () => {
  it('is read as what was written, whatever it was', () => {
    fc.assert(
      fc.property(record, (written) => {
        expect(parseCircuit(circuitText(written))).toEqual(written);
      }),
      { numRuns: 500 },
    );
  });

  it('looks like this', () => {
    const text = circuitText({
      state: 'half_open',
      epoch: 5,
      openUntil: 4,
      opens: 2,
      successes: 1,
      permits: [
        { token: 'a', deadline: 9 },
        { token: 'b', deadline: 8 },
      ],
      buckets: [{ slot: 7, calls: 6, failures: 3 }],
    });
    expect(text).toBe('h:5:4:2:1|7,6,3;|a,9;b,8;');
  });

  it.each([
    '',
    'h',
    'token',
    'p:1:5:token::',
    '5:1000000',
    'x:1:2:3:4||',
    'H:1:2:3:4||',
    'c:1:2:3||',
    'c:1:2:3:4',
    'c:1:2:3:4|',
    'c::2:3:4||',
    'c:-1:2:3:4||',
    'c:1.5:2:3:4||',
    'c:1:2:3:4|1,2;|',
    'c:1:2:3:4|1,2,3|',
    'c:1:2:3:4||,5;',
    'c:1:2:3:4||token,5',
    ' c:1:2:3:4||',
    'c:1:2:3:4||\n',
  ])('is not %j', (text) => {
    expect(parseCircuit(text)).toBeUndefined();
  });
});
