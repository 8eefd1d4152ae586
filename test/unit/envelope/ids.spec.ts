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

  it('100,000 of them are all different', () => {
    expect(new Set(Array.from({ length: 100_000 }, newId)).size).toBe(100_000);
  });
});
