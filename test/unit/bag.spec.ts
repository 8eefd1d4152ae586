import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { Bag } from '../../lib/bag.js';

const THINGS = 8;

describe('is a bag a set without an order?', () => {
  it('whatever is added and removed, both hold the same', () => {
    const change = fc.record({ add: fc.boolean(), which: fc.nat(THINGS - 1) });
    fc.assert(
      fc.property(fc.array(change, { maxLength: 60 }), (changes) => {
        const things = Array.from({ length: THINGS }, () => ({ at: -1 }));
        const bag = new Bag<{ at: number }>();
        const set = new Set<{ at: number }>();
        for (const { add, which } of changes) {
          const thing = things[which] as { at: number };
          if (add) {
            bag.add(thing);
            set.add(thing);
          } else {
            expect(bag.remove(thing)).toBe(set.delete(thing));
          }
          expect(bag.size).toBe(set.size);
          expect(things.filter((each) => bag.has(each))).toEqual(
            things.filter((each) => set.has(each)),
          );
          expect(new Set(bag)).toEqual(set);
        }
        bag.clear();
        expect([...bag]).toEqual([]);
        expect(things.some((each) => bag.has(each))).toBe(false);
      }),
    );
  });

  it('a thing of another bag is not in this one', () => {
    const thing = { at: -1 };
    new Bag<{ at: number }>().add(thing);
    const bag = new Bag<{ at: number }>();
    bag.add({ at: -1 });
    expect(bag.has(thing)).toBe(false);
    expect(bag.remove(thing)).toBe(false);
  });

  it('as many steps as there are things see each of them', () => {
    const bag = new Bag<{ at: number }>();
    const things = Array.from({ length: THINGS }, () => ({ at: -1 }));
    for (const thing of things) bag.add(thing);
    expect(new Set(things.map(() => bag.next()))).toEqual(new Set(things));
  });
});
