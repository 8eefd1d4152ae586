import { describe, expect, it } from '@jest/globals';
import { OutcomeText } from '../../../lib/policies/outcome.js';
import { UnencodableError } from '../../../lib/policies/rich-json.js';

const text = new OutcomeText({ codec: undefined, returns: undefined, maxBytes: 1_000 });

describe('who is given what was kept?', () => {
  it('of a direct call: direct callers, and no client', () => {
    const kept = text.encode({ kind: 'returned', handled: false, value: { id: 1, secret: 's' } });
    expect(text.decode(kept, 'code')).toEqual({ value: { id: 1, secret: 's' } });
    expect(text.decode(kept, 'http')).toBeUndefined();
    expect(text.decode(kept, 'transport')).toBeUndefined();
  });

  it('of a handler of another transport: everybody but clients of HTTP, who need a status', () => {
    const kept = text.encode({ kind: 'returned', handled: true, value: { id: 1 } });
    expect(text.decode(kept, 'code')).toEqual({ value: { id: 1 } });
    expect(text.decode(kept, 'transport')).toEqual({ value: { id: 1 } });
    expect(text.decode(kept, 'http')).toBeUndefined();
  });
});

describe('how large may it be?', () => {
  it('maxBytes in UTF-8, all that is written included', () => {
    const size = (value: string): number =>
      Buffer.byteLength(text.encode({ kind: 'returned', handled: false, value }));
    const fits = 'é'.repeat((1_000 - size('')) / 2);
    expect(size(fits)).toBeLessThanOrEqual(1_000);
    expect(() => size(`${fits}éé`)).toThrow(UnencodableError);
    expect(() => size(`${fits}éé`)).toThrow('more than maxBytes, 1000');
  });
});
