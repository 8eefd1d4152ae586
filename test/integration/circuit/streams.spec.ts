import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { CircuitBreaker, CircuitBreakers } from 'nestjs-cmdx';
import { lastValueFrom, NEVER, Observable, of, Subject, take, throwError, toArray } from 'rxjs';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { endOf } from '../../support/ends.js';

closeApplicationsAfterEach();

const KEY = 'cmdx:cb:feed';

@Injectable()
class Feed {
  opened = 0;
  source: Observable<string> = of('a', 'b');

  @CircuitBreaker('feed', { minimumCalls: 1, openFor: 10 })
  all(): Observable<string> {
    this.opened += 1;
    return this.source;
  }

  @CircuitBreaker({ name: 'feed', minimumCalls: 1, openFor: 10, onOpen: 'skip' })
  skipping(): Observable<string | undefined> {
    this.opened += 1;
    return this.source;
  }
}

function all<T>(stream: Observable<T>): Promise<T[]> {
  return lastValueFrom(stream.pipe(toArray()));
}

async function bootFeed() {
  const application = await boot({ providers: [Feed] });
  const breakers = application.module.get(CircuitBreakers);
  const feed = application.get(Feed);
  const trip = async (): Promise<void> => {
    const { source } = feed;
    feed.source = throwError(() => new Error('sick'));
    await endOf(all(feed.all()));
    feed.source = source;
    feed.opened = 0;
  };
  return { ...application, feed, breakers, trip };
}

describe('what does a stream tell the breaker?', () => {
  it('completed: a success, told once it has completed', async () => {
    const { feed, breakers } = await bootFeed();
    const source = new Subject<string>();
    feed.source = source;
    const values = all(feed.all());
    source.next('a');
    expect(await breakers.inspect(KEY)).toBeUndefined();
    source.complete();
    expect(await values).toEqual(['a']);
    expect(await breakers.inspect(KEY)).toMatchObject({ calls: 1, failures: 0 });
  });

  it('failed: a failure, also after it has emitted', async () => {
    const { feed, breakers } = await bootFeed();
    const source = new Subject<string>();
    feed.source = source;
    const values = endOf(all(feed.all()));
    source.next('a');
    source.error(new Error('sick'));
    expect(await values).toBe('sick');
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'open' });
  });

  it('unsubscribed: nothing, while it is closed', async () => {
    const { feed, breakers } = await bootFeed();
    expect(await all(feed.all().pipe(take(1)))).toEqual(['a']);
    feed.source = NEVER;
    feed.all().subscribe().unsubscribe();
    expect(feed.opened).toBe(2);
    expect(await breakers.inspect(KEY)).toBeUndefined();
  });

  it('unsubscribed: the permit of a probe goes to the next subscriber', async () => {
    const { feed, breakers, trip, clock } = await bootFeed();
    await trip();
    await clock.advance(10);
    feed.source = NEVER;
    const left = feed.all().subscribe();
    expect(await endOf(all(feed.all()))).toBe('circuit_open');
    left.unsubscribe();
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'half_open' });
    feed.source = of('a', 'b');
    expect(await all(feed.all())).toEqual(['a', 'b']);
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'closed' });
  });

  it('each subscription is one call', async () => {
    const { feed, breakers } = await bootFeed();
    const stream = feed.all();
    expect(await breakers.inspect(KEY)).toBeUndefined();
    for (let call = 0; call < 3; call++) await all(stream);
    expect(await breakers.inspect(KEY)).toMatchObject({ calls: 3 });
  });

  it('open: it fails without being opened, or emits one undefined where it skips', async () => {
    const { feed, trip } = await bootFeed();
    await trip();
    expect(await endOf(all(feed.all()))).toBe('circuit_open');
    expect(await all(feed.skipping())).toEqual([undefined]);
    expect(feed.opened).toBe(0);
  });
});
