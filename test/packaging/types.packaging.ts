import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Consumer } from './consumer.js';

/** What users write into tsconfig.json: a folder of `consumers` each. */
const settings = [
  ['NodeNext in an ESM package', 'esm'],
  ['NodeNext in a CJS package', 'nodenext-cjs'],
  ['CommonJS with the resolution of old', 'cjs'],
  ['a bundler', 'bundler'],
] as const;

describe('The types of every door', () => {
  let consumer: Consumer;

  beforeAll(async () => {
    const parts = settings.map(([, part]) => `${part}+doors`);
    consumer = await Consumer.install('types', parts);
  });
  afterAll(() => consumer?.remove());

  it.each(settings)('are right for %s', async (_title, part) => {
    expect(await consumer.tsc(part, '--noEmit')).toMatchObject({ code: 0, stdout: '' });
  });
});
