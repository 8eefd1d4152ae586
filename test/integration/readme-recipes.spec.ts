import { createHmac } from 'node:crypto';
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import type { INestApplication, Type } from '@nestjs/common';
import type { NextFunction, Request, Response } from 'express';
import { claimText, type InputInvalidError } from 'nestjs-cmdx';
import { ManualClock } from 'nestjs-cmdx/testing';
import { boot, closeApplicationsAfterEach } from '../support/application.js';
import { stopDate } from '../support/dates.js';
import { closeAppsAfterEach, startHttp } from '../support/http-app.js';
import { RECIPES, snippets, writeSnippets } from '../support/readme.js';
import { passing } from '../support/time.js';
import { startUpstream, type Upstream, type UpstreamAnswer } from '../support/upstream.js';

const examples = snippets(RECIPES, 'ts');
const files = writeSnippets('recipes', examples);

/** What a snippet exports. */
type Exports = Readonly<Record<string, Type<Instance>>>;
type Instance = Readonly<Record<string, (...args: readonly unknown[]) => Promise<unknown>>>;

closeApplicationsAfterEach();
closeAppsAfterEach();

const upstreams: Upstream[] = [];
afterEach(async () => {
  jest.useRealTimers();
  for (const upstream of upstreams.splice(0)) await upstream.close();
});

async function upstreamOf(answer: () => UpstreamAnswer | undefined): Promise<Upstream> {
  const upstream = await startUpstream(answer);
  upstreams.push(upstream);
  return upstream;
}

const claims: Readonly<Record<string, (exports: Exports) => Promise<void>>> = {
  'A job once, on whichever replica': async ({ Digest, Mails }) => {
    const { get, clock, store } = await boot({ providers: [Digest as Type, Mails as Type] });
    const digest = get<Instance & { customers: string[] }>(Digest as Type);
    const mails = get<Instance & { sent: string[] }>(Mails as Type);
    stopDate('2026-03-28T13:00:00Z');
    await Promise.all([digest['wake']?.(), digest['wake']?.()]);
    stopDate('2026-03-28T13:00:09Z');
    await digest['wake']?.();
    expect(mails.sent.splice(0)).toEqual([
      '2026-03-28T13 ada',
      '2026-03-28T13 bob',
      '2026-03-28T13 eve',
    ]);

    // The run of 14 o'clock has died while it wrote to bob.
    const dead = (key: string, run: string) =>
      store.set(
        key,
        claimText({
          state: 'pending',
          run: 1,
          leaseUntil: clock.now() + 60_000,
          token: run,
          fingerprint: '',
          outcome: '',
        }),
        { ttl: '1d' },
      );
    await mails['digest']?.('2026-03-28T14', 'ada');
    await dead('cmdx:idem:Digest.run:2026-03-28T14', 'run');
    await dead('cmdx:idem:Mails.digest:2026-03-28T14:bob', 'mail');
    stopDate('2026-03-28T14:00:00Z');
    await digest['wake']?.();
    expect(mails.sent.splice(0)).toEqual(['2026-03-28T14 ada']);
    await clock.advance('60s');
    await expect(digest['run']?.('2026-03-28T14')).rejects.toThrow(/^bob: .*unknown|^bob: .*never/);
    expect(mails.sent.splice(0)).toEqual(['2026-03-28T14 eve']);
    // Somebody has looked, and bob has got none.
    await store.forget('cmdx:idem:Mails.digest:2026-03-28T14:bob');
    await digest['run']?.('2026-03-28T14');
    expect(mails.sent).toEqual(['2026-03-28T14 bob']);
  },

  'A webhook at most once': async ({ OrderWebhooks, Shipments, SignatureGuard }) => {
    const clock = new ManualClock();
    const http = await startHttp('express', {
      controllers: [OrderWebhooks as Type],
      providers: [Shipments as Type, SignatureGuard as Type],
      cmdx: { clock },
      options: { rawBody: true },
    });
    const deliver = (event: object, secret = 'only for tests') => {
      const body = JSON.stringify(event);
      const signature = createHmac('sha256', secret).update(body).digest('hex');
      return http.request('/webhooks/orders', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-signature': signature },
        body,
      });
    };
    const event = { id: 'evt_1', orderId: 'o1' };
    expect(await deliver(event, 'guessed')).toMatchObject({ status: 403 });
    const deliveries = await passing(clock, Promise.all([deliver(event), deliver(event)]));
    deliveries.push(await deliver(event));
    expect(deliveries.map(({ status, text }) => [status, text])).toEqual(
      Array.from({ length: 3 }, () => [200, '{"shipment":"o1-1"}']),
    );
    const key = 'cmdx:idem:Shipments.ship:evt_2';
    const record = { state: 'pending', run: 1, leaseUntil: 0, token: 'dead' } as const;
    await http.store.set(key, claimText({ ...record, fingerprint: '', outcome: '' }), {
      ttl: '1d',
    });
    expect(await deliver({ id: 'evt_2', orderId: 'o2' })).toMatchObject({
      status: 409,
      body: { code: 'abandoned' },
    });
    expect(http.app.get<{ shipped: string[] }>(Shipments as Type).shipped).toEqual(['o1']);
  },

  'A flaky API': async ({ Carrier, Checkout }) => {
    const { get, clock, telemetry } = await boot({
      providers: [Carrier as Type, Checkout as Type],
    });
    const upstream = await upstreamOf(() => ({ body: '{"cents":490,"margin":40}' }));
    const carrier = get<Instance & { url: string }>(Carrier as Type);
    carrier.url = upstream.url;
    const checkout = get<Instance>(Checkout as Type);
    const shipping = (city: string) =>
      passing(clock, checkout['shipping']?.(city) as Promise<unknown>);
    expect(await shipping('Ulm')).toEqual({ cents: 490 });

    // Passing: its own word is believed, and what takes too long is not waited for.
    const answers: UpstreamAnswer[] = [{ status: 503, headers: { 'retry-after': '2' } }];
    upstream.answer = () => answers.shift() ?? { body: '{"cents":500}' };
    expect(await shipping('Ulm')).toEqual({ cents: 500 });
    expect(telemetry.of('task_retried').map(({ payload }) => payload.delay)).toEqual([2]);
    answers.push({ status: 429, headers: { 'retry-after': '3' } });
    expect(await shipping('Ulm')).toEqual({ cents: 500 });
    expect(telemetry.of('task_retried')).toHaveLength(1);

    // Not the carrier's fault, and not worth a repetition.
    upstream.answer = () => ({ status: 404 });
    for (let i = 0; i < 9; i++) await expect(shipping('Atlantis')).rejects.toThrow(/Atlantis/);
    upstream.answer = () => ({ body: '{"cents":-1}' });
    await expect(shipping('Rome')).rejects.toMatchObject({ code: 'output_invalid' });
    expect(telemetry.of('circuit_opened')).toEqual([]);
    expect(upstream.requests).toHaveLength(14);

    // Down: three of five have failed by then.
    upstream.answer = () => ({ status: 500 });
    for (let i = 0; i < 2; i++) expect(await shipping('Ulm')).toEqual({ cents: 500 });
    expect(telemetry.of('circuit_opened')).toHaveLength(1);
    expect(upstream.requests).toHaveLength(16);
    expect(await shipping('Ulm')).toEqual({ cents: 500 });
    await expect(shipping('Rome')).rejects.toMatchObject({
      code: 'circuit_open',
      status: 503,
      retryAfter: expect.any(Number),
    });
    expect(upstream.requests).toHaveLength(16);
  },

  Payments: async ({ Bank, PaymentsController }) => {
    const clock = new ManualClock();
    const http = await startHttp('express', {
      controllers: [PaymentsController as Type],
      providers: [Bank as Type],
      cmdx: { clock },
      setUp: authenticated,
    });
    const answers: UpstreamAnswer[] = [{ status: 503 }];
    const upstream = await upstreamOf(() => answers.shift() ?? { body: 'ch_1' });
    Object.assign(http.app.get(Bank as Type) as object, { url: upstream.url });
    const pay = (key: string, amount: number) =>
      passing(
        clock,
        http.post('/payments', { amount }, { 'x-user': 'ada', 'idempotency-key': key }),
      );
    const first = await pay('k', 5);
    expect(first).toMatchObject({ status: 201, body: { charge: 'ch_1', amount: 5 } });
    const again = await pay('k', 5);
    expect([again.text, again.headers.get('idempotent-replayed')]).toEqual([first.text, 'true']);
    expect(upstream.requests.map(({ headers }) => headers['idempotency-key'])).toEqual(['k', 'k']);
    expect(await pay('k', 6)).toMatchObject({ status: 422 });
    expect(await pay('', 6)).toMatchObject({ status: 400 });

    // What fails may be sent again with its key.
    answers.push({ status: 402 });
    expect(await pay('poor', 7)).toMatchObject({ status: 500 });
    expect(await pay('poor', 7)).toMatchObject({ status: 201 });

    // A process that has died: the bank is asked again, with the same key.
    const record = { state: 'pending', run: 1, leaseUntil: 0, token: 'dead' } as const;
    await http.store.set(
      'cmdx:idem:PaymentsController.create:ada:lost',
      claimText({ ...record, fingerprint: '', outcome: '' }),
      { ttl: '1d' },
    );
    expect(await pay('lost', 8)).toMatchObject({ status: 201 });
    expect(upstream.requests.at(-1)?.headers['idempotency-key']).toBe('lost');
  },

  'Plans per tenant': async ({ Plans, ReportsController }) => {
    const clock = new ManualClock();
    const http = await startHttp('express', {
      controllers: [ReportsController as Type],
      providers: [Plans as Type],
      cmdx: { clock },
    });
    const get = async (tenant: string, times: number) => {
      const answers = [];
      for (let i = 0; i < times; i++) answers.push(await http.get(`/reports/${tenant}`));
      return answers.map(({ status }) => status);
    };
    const admitted = (statuses: readonly number[]) =>
      statuses.filter((each) => each === 200).length;
    expect(admitted(await get('acme', 60))).toBe(50);
    await clock.advance('1s');
    expect(admitted(await get('acme', 30))).toBe(20);
    expect(admitted(await get('owls', 110))).toBe(100);
    expect((await http.get('/reports/owls')).headers.get('retry-after')).toBe('3600');
    const keys = http.telemetry
      .of('rate_limit_admitted')
      .map(({ payload }) => payload.rateLimitKey);
    expect(keys).toContain('cmdx:rl:Plans.free:owls');
  },

  'A login': async ({ LoginController, Logins }) => {
    const clock = new ManualClock();
    const http = await startHttp('express', {
      controllers: [LoginController as Type],
      providers: [Logins as Type],
      cmdx: { clock },
      trustProxy: true,
    });
    const logins = http.app.get<{ hashes: number }>(Logins as Type);
    const login = async (ip: string, email: string, password: string) =>
      (await http.post('/login', { email, password }, { 'x-forwarded-for': ip })).status;
    expect(await login('10.0.0.1', 'Ada@Example.com ', 'open sesame')).toBe(200);
    const tries = [];
    for (let i = 0; i < 6; i++) tries.push(await login(`10.0.0.${i}`, 'ada@example.com', 'x'));
    expect(tries).toEqual([401, 401, 401, 401, 429, 429]);
    await clock.advance('1m');
    expect(await login('10.0.1.1', 'ada@example.com', 'open sesame')).toBe(200);
    expect(logins.hashes).toBe(6);

    const many = [];
    for (let i = 0; i < 31; i++) many.push(await login('10.9.9.9', `user${i}@example.com`, 'x'));
    expect(many.filter((status) => status === 401)).toHaveLength(30);
    expect(many.at(-1)).toBe(429);
    expect(await login('10.0.2.1', 'nobody', 'x')).toBe(400);
    expect(logins.hashes).toBe(36);
  },

  'class-validator': async ({ Invitations, Invitation, Invited }) => {
    const { get } = await boot({ providers: [Invitations as Type] });
    const send = async (invitation: unknown) =>
      get<Instance>(Invitations as Type)['send']?.(invitation);
    const invited = await send({ email: 'ada@example.com', days: 2, admin: true });
    expect(invited).toBeInstanceOf(Invited);
    expect(invited).toEqual({ token: `${Invitation?.name} of ada@example.com` });
    const wrong = (await send({ email: 'ada', days: 0 }).catch((e) => e)) as InputInvalidError;
    expect(wrong.getResponse()).toMatchObject({
      statusCode: 400,
      code: 'input_invalid',
      message: ['email: email must be an email', 'days: days must not be less than 1'],
    });
    await expect(send('ada')).rejects.toMatchObject({ code: 'input_invalid' });
  },
};

/** The user's own authentication. */
function authenticated(app: INestApplication): void {
  app.use((request: Request & { user?: object }, _: Response, next: NextFunction) => {
    const id = request.header('x-user');
    if (id) request.user = { id };
    next();
  });
}

describe('do the recipes work?', () => {
  it('is each of them run?', () => {
    expect(Object.keys(claims)).toEqual(examples.map(({ heading }) => heading));
  });

  it.each(Object.keys(claims))('%s', async (heading) => {
    await claims[heading]?.((await import(files.get(heading) ?? '')) as Exports);
  });
});
