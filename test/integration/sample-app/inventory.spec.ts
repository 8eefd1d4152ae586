import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { ManualClock } from 'nestjs-cmdx/testing';
import { InventoryModule } from '../../../sample-app/inventory/inventory.module.js';
import { type HttpApp, startHttp } from '../../support/http-app.js';
import { type SampleApp, startSampleApp } from '../../support/sample-app.js';
import { until } from '../../support/time.js';

describe('does GET /inventory/:sku of the sample application', () => {
  let app: SampleApp;

  beforeAll(async () => {
    app = await startSampleApp();
  }, 30_000);
  afterAll(() => app.stop());

  const requests = () => app.output().split('[Warehouse] Request').length - 1;

  it('answer from a flaky warehouse at the second try, however the item is written?', async () => {
    for (const sku of ['A-1', 'a-1', '%20a-1%20']) {
      const before = requests();
      const { status, body } = await app.get(`/inventory/${sku}`);
      // What the warehouse tells besides stays inside.
      expect([status, body]).toEqual([200, { sku: 'A-1', quantity: 12 }]);
      expect(requests() - before).toBe(2);
    }
    expect(app.output()).toMatch(/task_retried task=Inventory.stockOf attempt=1 delay=0.1/);
  });

  it('ask a warehouse that is well once?', async () => {
    expect(await app.post('/warehouse/well')).toMatchObject({ body: { warehouse: 'well' } });
    const before = requests();
    expect(await app.get('/inventory/B-2')).toMatchObject({ status: 200, body: { quantity: 0 } });
    expect(requests() - before).toBe(1);
  });

  it('ask nobody about an item that cannot be?', async () => {
    const before = requests();
    expect(await app.get('/inventory/12-A')).toMatchObject({
      status: 400,
      body: { code: 'input_invalid', message: ['must be a letter, a dash and a number'] },
    });
    expect(requests()).toBe(before);
  });

  it('ask once about an item that there is none of, and not blame the warehouse?', async () => {
    const counted = async () => (await app.get('/breakers/warehouse')).body['failures'];
    const before = await counted();
    for (let i = 0; i < 6; i++) {
      expect(await app.get(`/inventory/C-${i}`)).toMatchObject({ status: 404 });
    }
    expect(await counted()).toBe(before);
  });

  it('know no other condition of the warehouse?', async () => {
    expect(await app.post('/warehouse/burning')).toMatchObject({ status: 400 });
  });
});

describe('when the warehouse is down, does GET /inventory/:sku', () => {
  let http: HttpApp;
  let clock: ManualClock;

  beforeEach(async () => {
    clock = new ManualClock();
    http = await startHttp('express', { imports: [InventoryModule], cmdx: { clock } });
    await http.post('/warehouse/down');
  });
  afterEach(() => http.close());

  const retries = () => http.telemetry.of('task_retried').length;

  /** Asks once, and lets time pass where the application sleeps before it repeats a request. */
  async function stock() {
    const before = retries();
    let answered = false;
    const answer = http.get('/inventory/A-1').finally(() => (answered = true));
    for (let seen = before; ; seen++) {
      await until(() => answered || retries() > seen, 'an answer, or a repetition');
      if (answered) return { ...(await answer), retried: retries() - before };
      await clock.advance('200ms');
    }
  }

  async function open() {
    const answers = [];
    for (let i = 0; i < 5; i++) answers.push(await stock());
    return answers;
  }

  it('repeat each request twice, five times over, and then leave the warehouse alone?', async () => {
    const answers = await open();
    expect(answers.map(({ status, retried }) => [status, retried])).toEqual(
      Array.from({ length: 5 }, () => [502, 2]),
    );
    const refused = await stock();
    expect(refused).toMatchObject({
      status: 503,
      retried: 0,
      body: {
        statusCode: 503,
        error: 'Service Unavailable',
        message: 'The service is temporarily unavailable.',
        code: 'circuit_open',
        retryAfter: 5,
      },
    });
    expect(refused.headers.get('retry-after')).toBe('5');
    const { body } = await http.get('/breakers/warehouse');
    expect(body).toMatchObject({ state: 'open', retryAfter: 5 });
  });

  it('try again with one request when its time is over, and be well again if the warehouse is?', async () => {
    await open();
    await http.post('/warehouse/well');
    await clock.advance('4999ms');
    expect(await stock()).toMatchObject({ status: 503, body: { retryAfter: 0.001 } });
    await clock.advance('1ms');
    expect(await stock()).toMatchObject({ status: 200, body: { sku: 'A-1', quantity: 12 } });
    expect((await http.get('/breakers/warehouse')).body).toMatchObject({ state: 'closed' });
    expect(http.telemetry.of('circuit_opened')).toHaveLength(1);
    expect(http.telemetry.of('circuit_half_opened')).toHaveLength(1);
    expect(http.telemetry.of('circuit_closed')).toHaveLength(1);
  });

  it('leave it alone for longer if it is still down?', async () => {
    await open();
    await clock.advance('5s');
    expect(await stock()).toMatchObject({ status: 502 });
    const { body } = await stock();
    expect(body).toMatchObject({ code: 'circuit_open' });
    const { retryAfter } = body as { retryAfter: number };
    expect(retryAfter).toBeGreaterThanOrEqual(5);
    expect(retryAfter).toBeLessThanOrEqual(10);
  });
});
