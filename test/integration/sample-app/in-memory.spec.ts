import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type SampleApp, startSampleApp } from '../../support/sample-app.js';
import { until } from '../../support/time.js';

describe('does the sample application', () => {
  let app: SampleApp;

  beforeAll(async () => {
    app = await startSampleApp();
  }, 30_000);
  afterAll(() => app.stop());

  it('name its routes at GET /?', async () => {
    const response = await fetch(app.url);
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      routes: [
        'POST /accounts/:accountId/reconcile',
        'POST /auth/forgot-password {"email"}',
        'GET /inventory/:sku, for example A-1',
        'GET /breakers/warehouse',
        'POST /warehouse/:condition, one of well, flaky, down',
        'POST /payments {"accountId", "amount"}, with Authorization: Bearer ada-demo-token and an Idempotency-Key',
        'POST /webhooks/payments {"id", "accountId", "amount"}',
        'POST /invoices/:id/pay, for example inv-1, with DATABASE_URL',
        'GET /invoices/:id, with DATABASE_URL',
      ],
    });
  });

  it('answer 409 while an account is being reconciled, and welcome it afterwards?', async () => {
    const path = '/accounts/acct_42/reconcile';
    const answers = await Promise.all([app.post(path), app.post(path)]);
    const [won, refused] = answers.toSorted((a, b) => a.status - b.status);
    expect(won).toMatchObject({ status: 200, body: { accountId: 'acct_42', difference: -50 } });
    expect(refused?.status).toBe(409);
    expect(refused?.body).toEqual({
      statusCode: 409,
      error: 'Conflict',
      message: 'This operation is already running.',
      code: 'busy',
      retryAfter: expect.any(Number),
    });
    expect(await app.post(path)).toMatchObject({ status: 200, body: { difference: 0 } });
  }, 15_000);

  it('keep accounts apart?', async () => {
    const answers = await Promise.all(
      ['acct_41', 'acct_43', 'acct_new'].map((id) => app.post(`/accounts/${id}/reconcile`)),
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  }, 15_000);

  it('send five links a minute to an address, however it is written, and charge no mistakes?', async () => {
    const send = (email: unknown) => app.post('/auth/forgot-password', { email });
    for (const wrong of ['ada', '', 42, ['ada@example.com'], { a: 1 }, undefined]) {
      expect(await send(wrong)).toMatchObject({ status: 400 });
    }
    for (let i = 0; i < 5; i++)
      expect(await send('ada@example.com')).toMatchObject({ status: 200 });

    const refused = await send(' Ada@Example.COM');
    expect(refused).toMatchObject({ status: 429, body: { code: 'rate_limited' } });
    const seconds = Number(refused.body['retryAfter']);
    expect(seconds).toBeGreaterThan(30);
    expect(seconds).toBeLessThanOrEqual(60);
    expect(refused.headers.get('retry-after')).toBe(String(Math.ceil(seconds)));
    expect(await send('bob@example.com')).toMatchObject({ status: 200 });
  }, 15_000);

  it('tell the Nest logger, without the address?', async () => {
    await app.post('/auth/forgot-password', { email: 'eve@example.com' });
    const lines = app.output().split('\n');
    const admitted = lines.filter((line) => line.includes('rate_limit_admitted'));
    expect(admitted.at(-1)).toMatch(/\[Cmdx\].* task=AuthController.forgotPassword/);
    expect(app.output()).not.toContain('eve@example.com');
  });

  it('finish what is running when it is asked to end, and then end by itself?', async () => {
    const leaving = await startSampleApp();
    const answer = leaving.post('/accounts/acct_42/reconcile');
    await until(() => leaving.output().includes('lock_acquired'), 'the lease');
    expect(await leaving.stop()).toBe('SIGTERM');
    expect(await answer).toMatchObject({ status: 200 });
  }, 30_000);
});
