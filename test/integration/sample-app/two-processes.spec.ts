import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { borrowRedis } from '../../support/redis-server.js';
import { type SampleApp, startSampleApp } from '../../support/sample-app.js';

describe('do two processes of the sample application on one Redis', () => {
  const id = `${process.pid}-${performance.timeOrigin}`;
  let server: Awaited<ReturnType<typeof borrowRedis>>;
  let apps: readonly SampleApp[];

  beforeAll(async () => {
    server = await borrowRedis();
    apps = await Promise.all([startSampleApp(server.url), startSampleApp(server.url)]);
  }, 30_000);
  afterAll(async () => {
    await Promise.all(apps.map((app) => app.stop()));
    await server.stop();
  });

  it('exclude each other from one account?', async () => {
    const path = `/accounts/${id}/reconcile`;
    const statuses = async () =>
      (await Promise.all(apps.map((app) => app.post(path)))).map(({ status }) => status).toSorted();
    expect(await statuses()).toEqual([200, 409]);
    expect(await statuses()).toEqual([200, 409]);
  }, 15_000);

  it('count together what one address may ask for?', async () => {
    const email = `ada-${id}@example.com`;
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, i) => apps[i % 2]?.post('/auth/forgot-password', { email })),
    );
    const statuses = answers.map((answer) => answer?.status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(5);
    expect(statuses.filter((status) => status === 429)).toHaveLength(7);
  }, 15_000);
});
