import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { Logger } from '@nestjs/common';
import { LoggerTelemetry, Telemetry, type TelemetryEventName } from 'nestjs-cmdx';
import { TELEMETRY_EVENTS } from '../../../lib/telemetry/events.js';
import { isDefinitionError } from '../../../lib/errors/definition.error.js';

const source = { cid: 'c', xid: undefined, tid: 't', root: true, task: 'Accounts.reconcile' };
const acquired = { lockKey: 'cmdx:lock:Accounts.reconcile:user@example.com' };

afterEach(() => void jest.restoreAllMocks());

describe('who hears an event?', () => {
  it('every subscriber of its name, in their order, with who it speaks of', () => {
    const telemetry = new Telemetry();
    const heard: unknown[] = [];
    telemetry.subscribe('lock_acquired', (event) => heard.push(['first', event]));
    telemetry.subscribe('lock_acquired', (event) => heard.push(['second', event]));
    telemetry.subscribe('lock_busy', (event) => heard.push(['other', event]));
    telemetry.emit('lock_acquired', source, acquired);
    const event = { name: 'lock_acquired', ...source, timestamp: expect.any(Date) };
    expect(heard).toEqual([
      ['first', { ...event, payload: acquired }],
      ['second', { ...event, payload: acquired }],
    ]);
  });

  it('frozen, so no subscriber changes what the next one sees', () => {
    const telemetry = new Telemetry();
    let event: { payload: object } | undefined;
    telemetry.subscribe('lock_acquired', (told) => (event = told));
    telemetry.emit('lock_acquired', source, { ...acquired });
    expect(Object.isFrozen(event)).toBe(true);
    expect(Object.isFrozen(event?.payload)).toBe(true);
  });

  it('nobody who has unsubscribed; doing so twice takes nobody else away', () => {
    const telemetry = new Telemetry();
    let heard = 0;
    const listener = (): void => void (heard += 1);
    const first = telemetry.subscribe('task_started', listener);
    telemetry.subscribe('task_started', listener);
    telemetry.emit('task_started', source, {});
    expect(heard).toBe(2);
    first();
    first();
    telemetry.emit('task_started', source, {});
    expect(heard).toBe(3);
  });

  it('a subscriber that leaves while it is told does not rob the next of the event', () => {
    const telemetry = new Telemetry();
    const heard: string[] = [];
    const leave = telemetry.subscribe('task_started', () => {
      heard.push('first');
      leave();
    });
    telemetry.subscribe('task_started', () => heard.push('second'));
    telemetry.emit('task_started', source, {});
    telemetry.emit('task_started', source, {});
    expect(heard).toEqual(['first', 'second', 'second']);
  });
});

describe('what does an event cost that nobody hears?', () => {
  it('nothing is built for it', () => {
    const telemetry = new Telemetry();
    const untouchable = new Proxy({} as typeof source, {
      get: (_target, name) => {
        throw new Error(`read ${String(name)}`);
      },
    });
    expect(() => telemetry.emit('lock_acquired', untouchable, acquired)).not.toThrow();
    expect(telemetry.hears('lock_acquired')).toBe(false);
    const leave = telemetry.subscribe('lock_acquired', () => undefined);
    expect(telemetry.hears('lock_acquired')).toBe(true);
    expect(telemetry.hears('lock_busy')).toBe(false);
    expect(() => telemetry.emit('lock_acquired', untouchable, acquired)).toThrow('read ');
    leave();
    expect(telemetry.hears('lock_acquired')).toBe(false);
    expect(() => telemetry.emit('lock_acquired', untouchable, acquired)).not.toThrow();
  });
});

describe('can a subscriber do harm?', () => {
  it('no: what it throws or rejects with is logged, once per subscriber', async () => {
    const logged = jest.spyOn(Logger.prototype, 'error').mockReturnValue(undefined);
    const telemetry = new Telemetry();
    let heard = 0;
    telemetry.subscribe('task_started', () => {
      throw new Error('broken');
    });
    telemetry.subscribe('task_started', () => Promise.reject(new Error('broken later')));
    telemetry.subscribe('task_started', () => (heard += 1));
    for (let round = 0; round < 3; round++) telemetry.emit('task_started', source, {});
    await new Promise((resolve) => setImmediate(resolve));
    expect(heard).toBe(3);
    expect(logged).toHaveBeenCalledTimes(2);
    expect(String(logged.mock.calls)).toContain('"task_started" failed');
    expect(String(logged.mock.calls)).toContain('broken later');
  });
});

describe('which names are there?', () => {
  it('an unknown one is refused, with the list', () => {
    const subscribe = (): unknown =>
      new Telemetry().subscribe('lock_gone' as TelemetryEventName, () => undefined);
    expect(thrownBy(subscribe)).toContain('lock_busy');
    expect(thrownBy(subscribe)).toContain('got "lock_gone"');
  });

  it('so is a subscriber that cannot be called', () => {
    const nothing = undefined as unknown as () => void;
    expect(thrownBy(() => new Telemetry().subscribe('lock_busy', nothing))).toBe(
      'Telemetry.subscribe("lock_busy"): expected a function, got undefined',
    );
  });

  it('the list is complete and cannot be changed', () => {
    expect(Object.isFrozen(TELEMETRY_EVENTS)).toBe(true);
    expect([...TELEMETRY_EVENTS].toSorted()).toEqual([
      'circuit_closed',
      'circuit_half_opened',
      'circuit_opened',
      'circuit_rejected',
      'idempotency_abandoned',
      'idempotency_claimed',
      'idempotency_duplicate',
      'idempotency_in_progress',
      'idempotency_mismatch',
      'idempotency_stale',
      'lock_acquired',
      'lock_busy',
      'policy_bypassed',
      'rate_limit_admitted',
      'rate_limit_exceeded',
      'row_locked',
      'store_error',
      'task_executed',
      'task_retried',
      'task_started',
    ]);
  });
});

describe('what does LoggerTelemetry write?', () => {
  const busy = { code: 'busy', lockKey: acquired.lockKey, onBusy: 'fail', retryAfter: 2 } as const;

  it('a refusal as a warning, with a digest in place of the key', () => {
    const warned = jest.spyOn(Logger.prototype, 'warn').mockReturnValue(undefined);
    const telemetry = new Telemetry();
    new LoggerTelemetry().listen(telemetry);
    telemetry.emit('lock_busy', source, busy);
    const line = String(warned.mock.calls[0]?.[0]);
    expect(line).toMatch(
      /^lock_busy task=Accounts\.reconcile code=busy retryAfter=2 key=[0-9a-f]{8} /,
    );
    expect(line).not.toContain('user@example.com');
  });

  it('the key itself when told so', () => {
    const warned = jest.spyOn(Logger.prototype, 'warn').mockReturnValue(undefined);
    const telemetry = new Telemetry();
    new LoggerTelemetry({ keys: true }).listen(telemetry);
    telemetry.emit('lock_busy', source, busy);
    expect(String(warned.mock.calls[0]?.[0])).toContain(`key=${acquired.lockKey}`);
  });

  describe('of idempotency', () => {
    const idempotencyKey = 'cmdx:idem:Accounts.reconcile:user@example.com';
    const facts = { idempotencyKey, run: 2, holder: 'holder-tid' };
    const told = {
      idempotency_claimed: { idempotencyKey, run: 2 },
      idempotency_duplicate: {
        code: 'duplicate',
        onDuplicate: 'replay',
        replayable: true,
        ...facts,
      },
      idempotency_in_progress: {
        code: 'in_progress',
        onInProgress: 'fail',
        retryAfter: 5,
        ...facts,
      },
      idempotency_mismatch: { code: 'payload_mismatch', ...facts },
      idempotency_abandoned: { code: 'abandoned', ...facts },
      idempotency_stale: { idempotencyKey, run: 2 },
    } as const;

    const linesWith = (options: { keys?: boolean }): [level: string, line: string][] => {
      const lines: [string, string][] = [];
      for (const level of ['log', 'debug', 'warn', 'error'] as const) {
        jest
          .spyOn(Logger.prototype, level)
          .mockImplementation((line: unknown) => void lines.push([level, String(line)]));
      }
      const telemetry = new Telemetry();
      new LoggerTelemetry(options).listen(telemetry);
      for (const [name, payload] of Object.entries(told)) {
        telemetry.emit(name as keyof typeof told, source, payload as never);
      }
      return lines;
    };

    it('refusals and losses as warnings, what is as it should be as debug lines', () => {
      expect(linesWith({}).map(([level, line]) => [level, line.split(' key=')[0]])).toEqual([
        ['debug', 'idempotency_claimed task=Accounts.reconcile run=2'],
        ['debug', 'idempotency_duplicate task=Accounts.reconcile code=duplicate run=2'],
        [
          'warn',
          'idempotency_in_progress task=Accounts.reconcile code=in_progress run=2 retryAfter=5',
        ],
        ['warn', 'idempotency_mismatch task=Accounts.reconcile code=payload_mismatch run=2'],
        ['warn', 'idempotency_abandoned task=Accounts.reconcile code=abandoned run=2'],
        ['warn', 'idempotency_stale task=Accounts.reconcile run=2'],
      ]);
    });

    it('a digest in place of every key, the same for the same key', () => {
      const lines = linesWith({}).map(([, line]) => line);
      expect(lines.join('\n')).not.toContain('user@');
      const digests = lines.map((line) => / key=([0-9a-f]{8}) /.exec(line)?.[1]);
      expect(digests).toHaveLength(6);
      expect(new Set(digests).size).toBe(1);
      expect(digests[0]).toBeDefined();
    });

    it('the keys when told so', () => {
      for (const [, line] of linesWith({ keys: true })) {
        expect(line).toContain(` key=${idempotencyKey} `);
      }
    });
  });

  it('nothing for a run that starts and ends as it should', () => {
    const telemetry = new Telemetry();
    new LoggerTelemetry().listen(telemetry);
    expect(telemetry.hears('task_started')).toBe(false);
    expect(telemetry.hears('task_executed')).toBe(false);
  });
});

function thrownBy(fn: () => unknown): string {
  try {
    fn();
  } catch (error) {
    if (isDefinitionError(error)) return error.message;
    throw error;
  }
  throw new Error('expected a DefinitionError, got none');
}
