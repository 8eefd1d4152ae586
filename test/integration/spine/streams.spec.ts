import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  arg,
  currentInvocation,
  DefinitionError,
  fail,
  LockWith,
  perTask,
  RateLimit,
  skip,
} from 'nestjs-cmdx';
import {
  concat,
  firstValueFrom,
  lastValueFrom,
  NEVER,
  Observable,
  of,
  Subject,
  throwError,
  toArray,
} from 'rxjs';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { until } from '../../support/time.js';

closeApplicationsAfterEach();

const KEY = 'cmdx:lock:shared';
const BOOM = new Error('boom');

@Injectable()
class Feed {
  source: Observable<string> = of('a', 'b');
  opened = 0;
  tids: (string | undefined)[] = [];

  /** Announced by the written return type, which the compiler emits. */
  @LockWith(perTask, { name: 'shared' })
  written(): Observable<string> {
    return this.#open();
  }

  /** Announced by the option: the type below is inferred, so nothing is emitted. */
  @LockWith(perTask, { name: 'shared', stream: true })
  announced() {
    return this.#open();
  }

  @LockWith(perTask, { name: 'shared', onBusy: 'skip' })
  skipping(): Observable<string | undefined> {
    return this.#open();
  }

  @LockWith(async () => 'later', { name: 'shared' })
  asyncKey(): Observable<string> {
    return this.#open();
  }

  @LockWith(async () => 'later', { name: 'shared', wait: 60 })
  waiting(): Observable<string> {
    return this.#open();
  }

  @RateLimit({ max: 1, per: 60 })
  limited(): Observable<string> {
    return this.#open();
  }

  @LockWith(perTask)
  bodySkips(): Observable<string | undefined> {
    return skip('nothing to watch');
  }

  @LockWith(perTask)
  bodyFails(): Observable<string> {
    return fail('not watchable');
  }

  @LockWith(perTask)
  bodyThrows(): Observable<string> {
    throw BOOM;
  }

  @LockWith(perTask)
  skipsInside(): Observable<string | undefined> {
    return concat(of('first'), new Observable<string>(() => skip('enough')));
  }

  @LockWith(arg(0))
  unannounced(_id: string) {
    return of(1);
  }

  #open(): Observable<string> {
    this.opened += 1;
    this.tids.push(currentInvocation()?.tid);
    return this.source;
  }
}

const ANNOUNCED = ['written', 'announced'] as const;

async function booted(source?: Observable<string>): Promise<Application & { feed: Feed }> {
  const application = await boot({ providers: [Feed] });
  const feed = application.get(Feed);
  if (source) feed.source = source;
  return { ...application, feed };
}

describe('Is a method that returns an Observable one invocation per subscription?', () => {
  it.each(ANNOUNCED)('%s: nothing runs before the first, each one runs anew', async (method) => {
    const { feed, telemetry } = await booted();
    const stream = feed[method]();
    expect(stream).toBeInstanceOf(Observable);
    expect(feed.opened).toBe(0);
    expect(telemetry.names).toEqual([]);

    await expect(lastValueFrom(stream.pipe(toArray()))).resolves.toEqual(['a', 'b']);
    await expect(lastValueFrom(stream.pipe(toArray()))).resolves.toEqual(['a', 'b']);
    expect(feed.opened).toBe(2);
    expect(new Set(feed.tids).size).toBe(2);
    expect(telemetry.of('task_started').map(({ tid }) => tid)).toEqual(feed.tids);
    expect(telemetry.names).toEqual([
      'task_started',
      'lock_acquired',
      'task_executed',
      'task_started',
      'lock_acquired',
      'task_executed',
    ]);
  });

  it('a rate limit charges each subscription, and the refusal is an error of the stream', async () => {
    const { feed } = await booted();
    const stream = feed.limited();
    await lastValueFrom(stream);
    await expect(lastValueFrom(stream)).rejects.toMatchObject({ code: 'rate_limited' });
    expect(feed.opened).toBe(1);
  });

  it('execute answers its Result, with the last value', async () => {
    const { feed, cmdx } = await booted();
    await expect(cmdx.execute(() => feed.written())).resolves.toMatchObject({
      status: 'success',
      value: 'b',
      task: 'Feed.written',
    });
    feed.source = throwError(() => BOOM);
    await expect(cmdx.execute(() => feed.written())).resolves.toMatchObject({
      status: 'failed',
      cause: BOOM,
    });
  });
});

describe('How long is the lease of a stream held?', () => {
  it.each(ANNOUNCED)('%s: until it completes, under the tid of the run', async (method) => {
    const subject = new Subject<string>();
    const { feed, store } = await booted(subject);
    const values: string[] = [];
    let completed = false;
    feed[method]().subscribe({
      next: (value) => values.push(value),
      complete: () => (completed = true),
    });
    subject.next('one');
    expect(await store.get(KEY)).toBe(feed.tids[0]);
    await expect(firstValueFrom(feed[method]())).rejects.toMatchObject({ code: 'busy' });
    subject.next('two');
    subject.complete();
    await until(() => completed, 'the end of the stream');
    expect(values).toEqual(['one', 'two']);
    expect(await store.get(KEY)).toBeUndefined();
  });

  it('until it fails, and the error is the very same', async () => {
    const subject = new Subject<string>();
    const { feed, store } = await booted(subject);
    const failing = lastValueFrom(feed.written());
    subject.error(BOOM);
    await expect(failing).rejects.toBe(BOOM);
    expect(await store.get(KEY)).toBeUndefined();
  });

  it('until it is unsubscribed, which also unsubscribes the source', async () => {
    const subject = new Subject<string>();
    const { feed, store, telemetry } = await booted(subject);
    const subscription = feed.written().subscribe();
    expect(await store.get(KEY)).toBe(feed.tids[0]);
    expect(subject.observed).toBe(true);
    subscription.unsubscribe();
    expect(subject.observed).toBe(false);
    expect(await store.get(KEY)).toBeUndefined();
    expect(telemetry.of('task_executed')).toHaveLength(1);
  });

  it.each(['written', 'asyncKey'] as const)(
    '%s: until a subscriber that takes one value has it, although the source goes on',
    async (method) => {
      const { feed, store, telemetry } = await booted(concat(of('first'), NEVER));
      await expect(firstValueFrom(feed[method]())).resolves.toBe('first');
      await until(() => telemetry.of('task_executed').length === 1, 'the end of the run');
      expect(await store.get(KEY)).toBeUndefined();
      expect(await store.get(`${KEY}:later`)).toBeUndefined();
    },
  );

  it('and a source without an end that emits at once is told to stop', async () => {
    let emitted = 0;
    const endless = new Observable<string>((subscriber) => {
      while (!subscriber.closed) subscriber.next(String(++emitted));
    });
    const { feed, store, telemetry } = await booted(endless);
    for (const method of ['written', 'asyncKey'] as const) {
      await expect(firstValueFrom(feed[method]())).resolves.toBeDefined();
    }
    await until(() => telemetry.of('task_executed').length === 2, 'the end of both runs');
    expect(emitted).toBeLessThanOrEqual(4);
    expect(await store.get(KEY)).toBeUndefined();
    expect(await store.get(`${KEY}:later`)).toBeUndefined();
  });

  it('no longer than the body takes to throw before it has made a stream', async () => {
    const { feed, store } = await booted();
    const stream = feed.bodyThrows();
    await expect(lastValueFrom(stream)).rejects.toBe(BOOM);
    await expect(lastValueFrom(feed.bodyFails())).rejects.toMatchObject({ code: 'failed' });
    expect(await store.get('cmdx:lock:Feed.bodyThrows')).toBeUndefined();
    expect(await store.get('cmdx:lock:Feed.bodyFails')).toBeUndefined();
  });

  it('its values reach the subscriber in order when the rings are asynchronous', async () => {
    const { feed, store } = await booted(of('a', 'b', 'c'));
    await expect(lastValueFrom(feed.asyncKey().pipe(toArray()))).resolves.toEqual(['a', 'b', 'c']);
    expect(await store.get(`${KEY}:later`)).toBeUndefined();
  });
});

describe('What does a skipped stream emit?', () => {
  it('one undefined, then it completes: refused with onBusy skip', async () => {
    const { feed, cmdx } = await booted(NEVER);
    const holding = feed.written().subscribe();
    await expect(lastValueFrom(feed.skipping().pipe(toArray()))).resolves.toEqual([undefined]);
    await expect(cmdx.execute(() => feed.skipping())).resolves.toMatchObject({
      status: 'skipped',
      metadata: { code: 'busy', onBusy: 'skip' },
    });
    expect(feed.opened).toBe(1);
    holding.unsubscribe();
  });

  it('the same when the body skips', async () => {
    const { feed, cmdx } = await booted();
    await expect(lastValueFrom(feed.bodySkips().pipe(toArray()))).resolves.toEqual([undefined]);
    await expect(cmdx.execute(() => feed.bodySkips())).resolves.toMatchObject({
      status: 'skipped',
      reason: 'nothing to watch',
    });
  });

  it('what came before, when the stream skips on its way', async () => {
    const { feed } = await booted();
    await expect(lastValueFrom(feed.skipsInside().pipe(toArray()))).resolves.toEqual([
      'first',
      undefined,
    ]);
  });
});

describe('What if nobody said that a method returns an Observable?', () => {
  it('it rejects with a DefinitionError that names both cures', async () => {
    const { feed, store } = await booted();
    const call = feed.unannounced('42') as unknown as Promise<unknown>;
    await expect(call).rejects.toThrow(DefinitionError);
    await expect(call).rejects.toThrow(/Feed\.unannounced.*Observable<\.\.\.>.*stream: true/s);
    expect(await store.get('cmdx:lock:Feed.unannounced:42')).toBeUndefined();
  });
});

describe('What if the subscriber leaves while the lock is waited for?', () => {
  it('the body never runs, and the next holder finds the lock free', async () => {
    const subject = new Subject<string>();
    const { feed, store, clock, telemetry } = await booted(subject);
    const holder = feed.asyncKey().subscribe();
    await until(() => feed.opened === 1, 'the holder');
    const waiter = feed.waiting().subscribe();
    await clock.advance('1s');
    expect(feed.opened).toBe(1);
    waiter.unsubscribe();
    await clock.advance('1s');
    holder.unsubscribe();
    await clock.advance('60s');
    expect(feed.opened).toBe(1);
    expect(await store.get(`${KEY}:later`)).toBeUndefined();
    expect(telemetry.of('task_started')).toHaveLength(2);
    expect(telemetry.of('task_executed')).toHaveLength(2);
    const last = firstValueFrom(feed.asyncKey());
    await until(() => feed.opened === 2, 'the next holder');
    subject.next('served');
    await expect(last).resolves.toBe('served');
  });

  it('it leaves the queue at its next try, and is no success', async () => {
    const { feed, clock, telemetry } = await booted(NEVER);
    const holder = feed.asyncKey().subscribe();
    await until(() => feed.opened === 1, 'the holder');
    const waiter = feed.waiting().subscribe();
    await clock.advance('1s');
    waiter.unsubscribe();
    await clock.advance('200ms');
    const [ended] = telemetry.of('task_executed');
    expect(ended?.payload.result).toMatchObject({
      task: 'Feed.waiting',
      status: 'skipped',
      state: 'interrupted',
      reason: 'unsubscribed',
    });
    expect(telemetry.of('lock_busy')).toEqual([]);
    holder.unsubscribe();
  });
});
