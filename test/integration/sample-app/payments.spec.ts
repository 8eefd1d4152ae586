import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type SampleAnswer, type SampleApp, startSampleApp } from '../../support/sample-app.js';
import { until } from '../../support/time.js';

let app: SampleApp;

beforeAll(async () => {
  app = await startSampleApp();
}, 30_000);
afterAll(() => app.stop());

/** How often a line was printed. */
function printed(line: string): number {
  return app.output().split(line).length - 1;
}

describe('does POST /payments of the sample application', () => {
  const pay = (user: string, key: string | undefined, body: unknown): Promise<SampleAnswer> =>
    app.post('/payments', body, {
      authorization: `Bearer ${user}-demo-token`,
      ...(key !== undefined && { 'idempotency-key': key }),
    });

  it('charge once for two requests with one key, and answer both alike?', async () => {
    const key = randomUUID();
    const payment = { accountId: 'acct_42', amount: 4_711 };
    const first = await pay('ada', key, payment);
    const again = await pay('ada', `"${key}"`, { amount: 4_711, accountId: 'acct_42' });
    expect(first).toMatchObject({ status: 201, body: { ...payment, id: expect.any(String) } });
    expect([again.status, again.text]).toEqual([201, first.text]);
    expect(first.headers.get('idempotent-replayed')).toBeNull();
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expect(printed('Charged 4711')).toBe(1);
  });

  it('refuse a second request while the first is at work, and one with another payload at any time?', async () => {
    const key = randomUUID();
    const first = pay('ada', key, { accountId: 'acct_42', amount: 4_712 });
    const claims = printed('idempotency_claimed');
    await until(() => printed('idempotency_claimed') > claims, 'the claim');
    const [same, other] = await Promise.all([
      pay('ada', key, { accountId: 'acct_42', amount: 4_712 }),
      pay('ada', key, { accountId: 'acct_42', amount: 1 }),
    ]);
    expect(same).toMatchObject({ status: 409, body: { code: 'in_progress' } });
    expect(other).toMatchObject({ status: 422, body: { code: 'payload_mismatch' } });
    expect((await first).status).toBe(201);
    const late = await pay('ada', key, { accountId: 'acct_42', amount: 1 });
    expect(late).toMatchObject({ status: 422, body: { code: 'payload_mismatch' } });
    expect(printed('Charged 4712')).toBe(1);
    expect(app.output()).not.toContain(key);
  });

  it('keep the keys of two users apart, and know both?', async () => {
    const key = randomUUID();
    const payment = { accountId: 'acct_42', amount: 4_713 };
    const [ada, bob] = await Promise.all([pay('ada', key, payment), pay('bob', key, payment)]);
    expect([ada.status, bob.status]).toEqual([201, 201]);
    expect(ada.body['id']).not.toBe(bob.body['id']);
    expect(printed('Charged 4713')).toBe(2);
    expect(await pay('eve', key, payment)).toMatchObject({ status: 401 });
    expect(await app.post('/payments', payment, { 'idempotency-key': key })).toMatchObject({
      status: 401,
    });
  });

  it('ask for a key, and burn none for a request that fails validation?', async () => {
    const payment = { accountId: 'acct_42', amount: 4_714 };
    for (const blank of [undefined, '', '""']) {
      expect(await pay('ada', blank, payment)).toMatchObject({
        status: 400,
        body: { code: 'key_missing' },
      });
    }
    const key = randomUUID();
    expect(await pay('ada', key, { ...payment, amount: -1 })).toMatchObject({ status: 400 });
    expect(await pay('ada', key, payment)).toMatchObject({ status: 201 });
    expect(printed('Charged 4714')).toBe(1);
  });
});

describe('does POST /webhooks/payments of the sample application', () => {
  const deliver = (id: string, accountId: string, amount: number): Promise<SampleAnswer> =>
    app.post('/webhooks/payments', { id, accountId, amount });

  it('book an event once that is redelivered at once and later, and answer each delivery alike?', async () => {
    const [event, account] = [randomUUID(), `acct_${randomUUID()}`];
    const deliveries = await Promise.all([1, 2, 3].map(() => deliver(event, account, 70)));
    deliveries.push(await deliver(event, account, 70));
    for (const { status, body } of deliveries) {
      expect([status, body]).toEqual([200, { accountId: account, balance: 70 }]);
    }
    expect((await deliver(randomUUID(), account, 1)).body).toMatchObject({ balance: 71 });
  }, 15_000);

  it('lose no event of an account to another one, nor to a reconciliation?', async () => {
    const account = `acct_${randomUUID()}`;
    const claims = printed('idempotency_claimed');
    const deliveries = [1, 2].map((amount) => deliver(`${account}-${amount}`, account, amount));
    await until(() => printed('idempotency_claimed') > claims, 'the first claim');
    expect(await app.post(`/accounts/${account}/reconcile`)).toMatchObject({ status: 409 });
    const balances = (await Promise.all(deliveries)).map(({ body }) => body['balance']);
    expect(Math.max(...(balances as number[]))).toBe(3);
  }, 15_000);
});
