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

  it('make a payment once, and answer it alike?', async () => {
    const payment = { accountId: id, amount: 70 };
    const headers = { authorization: 'Bearer ada-demo-token', 'idempotency-key': id };
    const pay = (app?: SampleApp) => app?.post('/payments', payment, headers);
    const both = await Promise.all(apps.map(pay));
    const [made, refused] = both.toSorted((a, b) => Number(a?.status) - Number(b?.status));
    expect(made?.status).toBe(201);
    expect(refused).toMatchObject({ status: 409, body: { code: 'in_progress' } });
    for (const app of apps) {
      expect(await pay(app)).toMatchObject({ status: 201, text: made?.text });
    }
  }, 15_000);

  it('book an event once that is delivered to both at once?', async () => {
    const event = { id, accountId: `acct_${id}`, amount: 70 };
    const deliveries = await Promise.all(apps.map((app) => app.post('/webhooks/payments', event)));
    expect(deliveries.map(({ status }) => status)).toEqual([200, 200]);
    const booked = apps.map((app) => app.output().split('idempotency_claimed task=PaymentEvents'));
    expect(booked.map((parts) => parts.length - 1).toSorted()).toEqual([0, 1]);
  }, 15_000);

  it('leave a warehouse alone that was down for one of them?', async () => {
    const [first, second] = apps;
    await first?.post('/warehouse/down');
    await second?.post('/warehouse/well');
    const statuses: unknown[] = [];
    for (let i = 0; i < 5; i++) statuses.push((await first?.get('/inventory/A-1'))?.status);
    // A breaker that earlier calls have counted for opens no later than that.
    expect(statuses).toContain(502);
    expect(await second?.get('/inventory/A-1')).toMatchObject({
      status: 503,
      body: { code: 'circuit_open' },
    });
    expect(second?.output()).not.toContain('[Warehouse] Request');
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
