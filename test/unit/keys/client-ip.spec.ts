import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { normaliseIp } from '../../../lib/keys/request.js';

describe('is one client one address, however it is spelled?', () => {
  it.each([
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::FFFF:c000:201', '192.0.2.1'],
    ['0:0:0:0:0:ffff:192.0.2.1', '192.0.2.1'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['2001:0DB8:0:0:ffff:ffff:ffff:ffff', '2001:db8:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['::', '0:0:0:0::/64'],
    ['1::', '1:0:0:0::/64'],
    ['64:ff9b::192.0.2.1', '64:ff9b:0:0::/64'],
    ['unix socket', 'unix socket'],
  ])('%p is %p', (address, expected) => {
    expect(normaliseIp(address)).toBe(expected);
  });

  it('no address is no address', () => {
    expect(normaliseIp(undefined)).toBeUndefined();
  });

  it('every spelling of random addresses', () => {
    const group = fc.integer({ min: 0, max: 0xffff });
    const groups = fc.array(fc.oneof(fc.constant(0), group), { minLength: 8, maxLength: 8 });
    fc.assert(
      fc.property(groups, fc.boolean(), fc.boolean(), fc.nat(), (address, upper, tail, cut) => {
        const text = spell(address, tail, cut);
        expect(normaliseIp(upper ? text.toUpperCase() : text)).toBe(plain(address));
      }),
      { numRuns: 5_000 },
    );
  });

  it('every IPv4 address, mapped or not', () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) => {
        expect(normaliseIp(address)).toBe(address);
        expect(normaliseIp(`::ffff:${address}`)).toBe(address);
      }),
    );
  });
});

/** The expected answer, made of the numbers and never of a spelling. */
function plain(groups: readonly number[]): string {
  const mapped = groups.slice(0, 5).every((each) => each === 0) && groups[5] === 0xffff;
  if (mapped) {
    const bytes = groups.slice(6).flatMap((each) => [Math.floor(each / 256), each % 256]);
    return bytes.join('.');
  }
  return `${groups
    .slice(0, 4)
    .map((each) => each.toString(16))
    .join(':')}::/64`;
}

/** One of the many ways to write an address: some run of zeros as `::`, the end as dotted bytes. */
function spell(groups: readonly number[], dottedTail: boolean, cut: number): string {
  const words = groups.map((each) => each.toString(16).padStart(1 + (cut % 4), '0'));
  if (dottedTail) {
    const bytes = groups.slice(6).flatMap((each) => [each >> 8, each & 255]);
    words.splice(6, 2, bytes.join('.'));
  }
  const last = dottedTail ? 6 : 8;
  const start = cut % last;
  let end = start;
  while (end < last && groups[end] === 0) end += 1;
  if (end === start) return words.join(':');
  return `${words.slice(0, start).join(':')}::${words.slice(end).join(':')}`;
}
