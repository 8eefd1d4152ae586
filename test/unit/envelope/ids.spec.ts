import { describe, expect, it } from '@jest/globals';
import { validate, version } from 'uuid';
import { newId } from '../../../lib/envelope/ids.js';

describe('is an id a uuid v7?', () => {
  it('to the best-known library it is', () => {
    const id = newId();
    expect(validate(id)).toBe(true);
    expect(version(id)).toBe(7);
  });

  it('it begins with the time of day', () => {
    const before = Date.now();
    const id = newId();
    const time = Number.parseInt(id.replace('-', '').slice(0, 12), 16);
    expect(time).toBeGreaterThanOrEqual(before);
    expect(time).toBeLessThanOrEqual(Date.now());
  });

  it('a later one sorts after an earlier one', async () => {
    const earlier = newId();
    const start = Date.now();
    while (Date.now() === start);
    expect(newId() > earlier).toBe(true);
  });

  it('those of one millisecond are in order, as long as it has no more than 4,096', () => {
    const ids = Array.from({ length: 20_000 }, newId);
    const draws = new Map<string, string[]>();
    for (const id of ids) {
      const draw = id.slice(0, 15) + id.slice(18);
      draws.set(draw, [...(draws.get(draw) ?? []), id]);
    }
    expect(Math.max(...[...draws.values()].map(({ length }) => length))).toBeGreaterThan(1);
    for (const drawn of draws.values()) {
      expect(drawn.length).toBeLessThanOrEqual(4_096);
      expect(drawn).toEqual(drawn.toSorted());
    }
  });

  it('100,000 of them are all different', () => {
    expect(new Set(Array.from({ length: 100_000 }, newId)).size).toBe(100_000);
  });
});
