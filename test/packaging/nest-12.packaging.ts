import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Consumer, must } from './consumer.js';
import { copiesThatMeet, doors, httpAnswers, serviceAnswers, specifier } from './expectations.js';

describe('An application on Nest 12, without ioredis', () => {
  let consumer: Consumer;

  beforeAll(async () => {
    consumer = await Consumer.install('nest-12', ['esm+app+copies', 'cjs+app']);
  });
  afterAll(() => consumer?.remove());

  it('has the package and its peers installed without a complaint', async () => {
    expect(await consumer.version('@nestjs/core')).toMatch(/^12\./);
    await expect(consumer.version('ioredis')).rejects.toThrow('ENOENT');
    await must(consumer.npm('ls', '--all'));
  });

  describe.each(['esm', 'cjs'])('as %s', (format) => {
    it('compiles, declarations included', async () => {
      expect(await consumer.tsc(format)).toMatchObject({ code: 0, stdout: '' });
    });

    it('guards a service', async () => {
      expect(await consumer.report(format, 'service.js')).toEqual(serviceAnswers);
    });

    it('guards a route on Express', async () => {
      expect(await consumer.report(format, 'http.js')).toEqual(httpAnswers);
    });

    it('needs ioredis only behind ./redis', async () => {
      expect(await consumer.report(format, 'imports.js', ...doors.map(specifier))).toEqual({
        'nestjs-cmdx': 'opens',
        'nestjs-cmdx/redis': 'needs ioredis',
        'nestjs-cmdx/row-lock': 'opens',
        'nestjs-cmdx/testing': 'opens',
        'nestjs-cmdx/testing/bypass': 'opens',
      });
    });

    it('is told of an instance that Nest did not make, unless it asked for the bypass', async () => {
      expect(await consumer.report(format, 'unmanaged.js')).toBe('not_managed');
      expect(await consumer.report(format, 'unmanaged.js', 'bypass')).toBe('reconciled acct_42');
    });
  });

  it('is one application when it has loaded both copies of the package', async () => {
    expect(await consumer.report('esm', 'copies.js')).toEqual(copiesThatMeet);
  });
});
