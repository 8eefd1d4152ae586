import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  CircuitBreaker,
  CircuitBreakers,
  CircuitOpenError,
  type CircuitOpenMetadata,
  isRefusalError,
  RetryOn,
} from 'nestjs-cmdx';
import { type Application, boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { endOf } from '../../support/ends.js';

closeApplicationsAfterEach();

const KEY = 'cmdx:cb:Upstream.call';
const SICK = new Error('The upstream is sick.');

@Injectable()
class Upstream {
  runs = 0;
  body: () => unknown = () => 'well';

  @CircuitBreaker()
  async call(): Promise<unknown> {
    this.runs += 1;
    return this.body();
  }

  @CircuitBreaker('two', { minimumCalls: 1, permits: 2, probeTimeout: 5, openFor: 10 })
  async probed(body: () => unknown = this.body): Promise<unknown> {
    this.runs += 1;
    return body();
  }

  @CircuitBreaker('retried', { minimumCalls: 2 })
  @RetryOn(Error, { limit: 3, delay: '10ms' })
  async retried(): Promise<unknown> {
    this.runs += 1;
    return this.body();
  }

  sick(): this {
    this.body = () => {
      throw SICK;
    };
    return this;
  }

  well(): this {
    this.body = () => 'well';
    return this;
  }
}

async function bootUpstream() {
  const application = await boot({ providers: [Upstream] });
  return { ...application, upstream: application.get(Upstream), breakers: breakersOf(application) };
}

function breakersOf({ module }: Application): CircuitBreakers {
  return module.get(CircuitBreakers);
}

/** The events of breakers, in order: the name and the seconds that it told. */
function told({ telemetry }: Application): string[] {
  return telemetry.names.filter((name) => name.startsWith('circuit_'));
}

describe('when does it open?', () => {
  it('50 calls that fail at once open it once; those that come then do not run', async () => {
    const app = await bootUpstream();
    const door = new Door();
    app.upstream.body = async () => {
      await door.pass();
      throw SICK;
    };
    const calls = Array.from({ length: 50 }, () => endOf(app.upstream.call()));
    door.open();
    expect(new Set(await Promise.all(calls))).toEqual(new Set([SICK.message]));
    expect(told(app)).toEqual(['circuit_opened']);
    expect(app.telemetry.of('circuit_opened')[0]?.payload).toEqual({
      circuitKey: KEY,
      epoch: expect.any(Number),
      failureRate: 1,
      retryAfter: 30,
    });
    expect(await endOf(app.upstream.call())).toBe('circuit_open');
    expect(app.upstream.runs).toBe(50);
  });

  it('by default with half of at least 10 calls in a minute', async () => {
    const { upstream, breakers } = await bootUpstream();
    for (let call = 0; call < 5; call++) await upstream.well().call();
    for (let call = 0; call < 4; call++) await endOf(upstream.sick().call());
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'closed', calls: 9, failures: 4 });
    await endOf(upstream.call());
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'open' });
  });

  it('calls of more than a minute ago say nothing', async () => {
    const { upstream, breakers, clock } = await bootUpstream();
    for (let call = 0; call < 9; call++) await endOf(upstream.sick().call());
    await clock.advance('1m');
    for (let call = 0; call < 9; call++) await endOf(upstream.call());
    expect(await breakers.inspect(KEY)).toMatchObject({ state: 'closed', calls: 9, failures: 9 });
  });

  it('a call whose body was repeated is one call', async () => {
    const { upstream, breakers, telemetry, clock } = await bootUpstream();
    const failing = endOf(upstream.sick().retried());
    await clock.advance('1s');
    expect(await failing).toBe(SICK.message);
    expect(upstream.runs).toBe(4);
    expect(telemetry.of('task_retried')).toHaveLength(3);
    expect(await breakers.inspect('cmdx:cb:retried')).toMatchObject({ calls: 1, failures: 1 });
    let left = 2;
    upstream.body = () => {
      if (left-- > 0) throw SICK;
      return 'well';
    };
    const healing = upstream.retried();
    await clock.advance('1s');
    expect(await healing).toBe('well');
    expect(await breakers.inspect('cmdx:cb:retried')).toMatchObject({ calls: 2, failures: 1 });
  });
});

describe('what is a caller told whom it refuses?', () => {
  it('how long it stays open, as error, as result and as event', async () => {
    const app = await bootUpstream();
    for (let call = 0; call < 10; call++) await endOf(app.upstream.sick().call());
    await app.clock.advance('12.5s');
    const metadata: CircuitOpenMetadata = {
      code: 'circuit_open',
      circuitKey: KEY,
      onOpen: 'fail',
      epoch: app.telemetry.of('circuit_opened')[0]?.payload.epoch ?? -1,
      retryAfter: 17.5,
    };
    const error: unknown = await app.upstream.call().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(CircuitOpenError);
    expect(isRefusalError(error) && error.metadata).toEqual(metadata);
    expect(error).toMatchObject({ code: 'circuit_open', retryAfter: 17.5, task: 'Upstream.call' });
    expect(String(error)).not.toContain(KEY);
    const result = await app.cmdx.execute(() => app.upstream.call());
    expect(result).toMatchObject({ status: 'failed', metadata });
    expect(app.telemetry.of('circuit_rejected').map(({ payload }) => payload)).toEqual([
      metadata,
      metadata,
    ]);
    // The refusal is told before the task is over.
    expect(app.telemetry.names.slice(-3)).toEqual([
      'task_started',
      'circuit_rejected',
      'task_executed',
    ]);
  });
});

describe('how does it find out?', () => {
  it('who waits exactly as told is let in, and his success closes it', async () => {
    const app = await bootUpstream();
    for (let call = 0; call < 10; call++) await endOf(app.upstream.sick().call());
    app.upstream.well();
    await app.clock.advance('29.999s');
    expect(await endOf(app.upstream.call())).toBe('circuit_open');
    await app.clock.advance('1ms');
    app.telemetry.clear();
    expect(await app.upstream.call()).toBe('well');
    expect(app.telemetry.names).toEqual([
      'task_started',
      'circuit_half_opened',
      'circuit_closed',
      'task_executed',
    ]);
    const [halfOpened, closed] = [
      app.telemetry.of('circuit_half_opened')[0]?.payload,
      app.telemetry.of('circuit_closed')[0]?.payload,
    ];
    for (const payload of [halfOpened, closed]) {
      expect(payload).toEqual({ circuitKey: KEY, epoch: expect.any(Number) });
    }
    expect(closed?.epoch).toBeGreaterThan(halfOpened?.epoch ?? Infinity);
    expect(await app.breakers.inspect(KEY)).toMatchObject({ state: 'closed', calls: 0 });
  });

  it('a probe that fails opens it for longer, at most for ten minutes', async () => {
    const app = await bootUpstream();
    for (let call = 0; call < 10; call++) await endOf(app.upstream.sick().call());
    for (let probe = 0; probe < 8; probe++) {
      const { retryAfter = 0 } = app.telemetry.of('circuit_opened').at(-1)?.payload ?? {};
      await app.clock.advance(retryAfter);
      expect(await endOf(app.upstream.call())).toBe(SICK.message);
      expect(await endOf(app.upstream.call())).toBe('circuit_open');
    }
    const lengths = app.telemetry.of('circuit_opened').map(({ payload }) => payload.retryAfter);
    expect(lengths).toHaveLength(9);
    for (const [opening, seconds] of lengths.entries()) {
      const longest = Math.min(600, 30 * 2 ** opening);
      expect(seconds).toBeGreaterThanOrEqual(opening === 0 ? 30 : longest / 2);
      expect(seconds).toBeLessThanOrEqual(longest);
    }
    expect(new Set(lengths.slice(-4)).size).toBeGreaterThan(1);
  });

  it('as many probes as permits, and as many successes', async () => {
    const app = await bootUpstream();
    const { upstream, clock } = app;
    await endOf(upstream.sick().probed());
    await clock.advance(10);
    const door = new Door();
    const calls = Array.from({ length: 20 }, () => endOf(upstream.probed(() => door.pass())));
    await clock.advance(0);
    expect(door.inside).toBe(2);
    door.open();
    const ends = await Promise.all(calls);
    expect(ends.filter((end) => end === undefined)).toHaveLength(2);
    expect(ends.filter((end) => end === 'circuit_open')).toHaveLength(18);
    expect(told(app).filter((name) => name !== 'circuit_rejected')).toEqual([
      'circuit_opened',
      'circuit_half_opened',
      'circuit_closed',
    ]);
  });

  it('after one success of two it is still half open, and one failure undoes it', async () => {
    const app = await bootUpstream();
    const { upstream, clock, breakers } = app;
    await endOf(upstream.sick().probed());
    await clock.advance(10);
    await upstream.well().probed();
    expect(await breakers.inspect('cmdx:cb:two')).toMatchObject({ state: 'half_open' });
    await endOf(upstream.sick().probed());
    expect(await breakers.inspect('cmdx:cb:two')).toMatchObject({ state: 'open' });
    expect(told(app)).toEqual(['circuit_opened', 'circuit_half_opened', 'circuit_opened']);
  });
});

describe('what of a call that comes back too late?', () => {
  it.each(['success', 'failure'] as const)(
    'a probe that hangs gives its place to the next; its %s then changes nothing',
    async (end) => {
      const { upstream, clock, breakers } = await bootUpstream();
      await endOf(upstream.sick().probed());
      await clock.advance(10);
      const door = new Door();
      const hung = [1, 2].map(() =>
        endOf(
          upstream.probed(async () => {
            await door.pass();
            if (end === 'failure') throw SICK;
            return 'late';
          }),
        ),
      );
      await clock.advance('4.999s');
      expect(await endOf(upstream.well().probed())).toBe('circuit_open');
      await clock.advance('1ms');
      expect(await upstream.probed()).toBe('well');
      door.open();
      expect(await Promise.all(hung)).toEqual(
        Array.from({ length: 2 }, () => (end === 'failure' ? SICK.message : 'late')),
      );
      expect(await breakers.inspect('cmdx:cb:two')).toMatchObject({ state: 'half_open' });
      expect(await upstream.probed()).toBe('well');
      expect(await breakers.inspect('cmdx:cb:two')).toMatchObject({ state: 'closed' });
    },
  );

  it('one of before it opened neither closes it, nor opens it again, nor counts', async () => {
    const { upstream, clock, breakers, telemetry } = await bootUpstream();
    const doors = { success: new Door(), failure: new Door() };
    const late = Object.entries(doors).map(([end, door]) =>
      endOf(
        upstream.probed(async () => {
          await door.pass();
          if (end === 'failure') throw SICK;
        }),
      ),
    );
    await endOf(upstream.sick().probed());
    const opened = await breakers.inspect('cmdx:cb:two');
    doors.success.open();
    await late[0];
    expect(await breakers.inspect('cmdx:cb:two')).toEqual(opened);
    await clock.advance(10);
    await upstream.well().probed();
    await upstream.probed();
    doors.failure.open();
    await late[1];
    expect(await breakers.inspect('cmdx:cb:two')).toMatchObject({ state: 'closed', calls: 0 });
    expect(telemetry.of('circuit_opened')).toHaveLength(1);
  });
});
