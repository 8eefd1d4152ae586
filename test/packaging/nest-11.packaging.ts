import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Consumer, must } from './consumer.js';
import { copiesThatMeet, doors, httpAnswers, serviceAnswers, specifier } from './expectations.js';

/** Makes node a tool that knows neither `module-sync` nor how to require ESM: it finds the CJS build. */
const plainRequire = '--no-experimental-require-module';

describe('An application on Nest 11', () => {
  let consumer: Consumer;

  beforeAll(async () => {
    consumer = await Consumer.install('nest-11', ['cjs+app+doors', 'esm+app+doors+copies']);
  });
  afterAll(() => consumer?.remove());

  it('has the package and its peers installed without a complaint', async () => {
    expect(await consumer.version('@nestjs/core')).toMatch(/^11\./);
    await must(consumer.npm('ls', '--all'));
  });

  it.each(['cjs', 'esm'])('compiles as %s, with the declarations of every door', async (format) => {
    expect(await consumer.tsc(format)).toMatchObject({ code: 0, stdout: '' });
  });

  describe.each([
    ['cjs', []],
    ['cjs', [plainRequire]],
    ['esm', []],
  ])('as %s %j', (format, flags) => {
    it('guards a service', async () => {
      expect(await consumer.report(format, ...flags, 'service.js')).toEqual(serviceAnswers);
    });

    it('guards a route on Express', async () => {
      expect(await consumer.report(format, ...flags, 'http.js')).toEqual(httpAnswers);
    });

    it('opens every door', async () => {
      const names = doors.map(specifier);
      expect(await consumer.report(format, ...flags, 'imports.js', ...names)).toEqual(
        Object.fromEntries(names.map((name) => [name, 'opens'])),
      );
    });
  });

  it('is one application when import and require found different copies of the package', async () => {
    expect(await consumer.report('esm', plainRequire, 'copies.js', 'front-door')).toEqual(
      copiesThatMeet,
    );
  });
});
