import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Cron, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { arg, IdempotentBy, OnTelemetry, perTask, type TelemetryEvent } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

@Injectable()
class Nightly {
  runs: string[] = [];
  day = 'monday';

  constructor(readonly door: Door) {}

  @Cron('0 3 * * *', { name: 'below' })
  @IdempotentBy(perTask, { ttl: '20m', onDuplicate: 'skip', onInProgress: 'skip' })
  async below(): Promise<void> {
    this.runs.push('below');
    await this.door.pass();
  }

  @IdempotentBy(
    function (this: Nightly) {
      return this.day;
    },
    { onDuplicate: 'skip', onInProgress: 'skip' },
  )
  @Cron('0 3 * * *', { name: 'above' })
  async above(): Promise<void> {
    this.runs.push(`above ${this.day}`);
    await this.door.pass();
  }
}

async function bootNightly(options: Parameters<typeof boot>[1] = {}) {
  const application = await boot(
    { imports: [ScheduleModule.forRoot()], providers: [Door, Nightly] },
    options,
  );
  const registry = application.get(SchedulerRegistry);
  return {
    ...application,
    nightly: application.get(Nightly),
    /** Lets the scheduler fire, as it does at night. It waits for nothing, so the next turn is waited for. */
    async fire(name: string): Promise<void> {
      void registry.getCronJob(name).fireOnTick();
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

describe('How often does a scheduled job run that its scheduler fires twice?', () => {
  it.each(['below', 'above'] as const)('once, the decorator %s the cron', async (name) => {
    const { nightly, fire, clock, telemetry } = await bootNightly();
    await fire(name);
    await fire(name);
    nightly.door.open();
    await new Promise((resolve) => setImmediate(resolve));
    await fire(name);
    expect(nightly.runs).toHaveLength(1);
    expect(telemetry.names.filter((each) => each.startsWith('idempotency_'))).toEqual([
      'idempotency_claimed',
      'idempotency_in_progress',
      'idempotency_duplicate',
    ]);
    nightly.day = 'tuesday';
    await clock.advance('20m');
    await fire(name);
    expect(nightly.runs).toHaveLength(2);
  });

  it('no less often because the module has a default scope, which is for requests', async () => {
    const { nightly, fire } = await bootNightly({
      defaults: { idempotency: { scope: () => undefined, onBlank: 'fail' } },
    });
    nightly.door.open();
    await fire('below');
    await fire('above');
    await fire('above');
    expect(nightly.runs).toEqual(['below', 'above monday']);
  });
});

@Injectable()
class Mailer {
  @IdempotentBy(arg(0))
  async send(_id: string): Promise<void> {}
}

@Injectable()
class Audit {
  seen: string[] = [];

  /** Told more than once of one mail; writes it down once. */
  @OnTelemetry('idempotency_claimed')
  @OnTelemetry('idempotency_duplicate')
  @IdempotentBy((event: TelemetryEvent<'idempotency_claimed'>) => event.payload.idempotencyKey, {
    unless: (event: TelemetryEvent) => event.task === 'Audit.note',
    onDuplicate: 'skip',
    onInProgress: 'skip',
  })
  async note(
    event: TelemetryEvent<'idempotency_claimed' | 'idempotency_duplicate'>,
  ): Promise<void> {
    if (event.task !== 'Audit.note') this.seen.push(event.payload.idempotencyKey);
  }
}

describe('How often does a listener run that is told of one thing twice?', () => {
  it('once', async () => {
    const { get, telemetry } = await boot({ providers: [Mailer, Audit] });
    await get(Mailer).send('1');
    await get(Mailer).send('1');
    await get(Mailer).send('2');
    await new Promise((resolve) => setImmediate(resolve));
    expect(get(Audit).seen).toEqual(['cmdx:idem:Mailer.send:1', 'cmdx:idem:Mailer.send:2']);
    expect(telemetry.of('idempotency_duplicate').map(({ task }) => task)).toContain('Audit.note');
  });
});
