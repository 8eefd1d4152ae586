import { createHash } from 'node:crypto';
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { Injectable, Logger } from '@nestjs/common';
import { CircuitBreaker, LoggerTelemetry, OnTelemetry, type TelemetryEvent } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { endOf } from '../../support/ends.js';

closeApplicationsAfterEach();
afterEach(() => void jest.restoreAllMocks());

const KEY = 'cmdx:cb:Upstream.call:ada@example.com';

@Injectable()
class Upstream {
  opened: TelemetryEvent<'circuit_opened'>[] = [];

  @CircuitBreaker((user: string) => user, { minimumCalls: 1, openFor: 10 })
  async call(_user: string, body: () => unknown): Promise<unknown> {
    return body();
  }

  @OnTelemetry('circuit_opened')
  onOpened(event: TelemetryEvent<'circuit_opened'>): void {
    this.opened.push(event);
  }
}

async function linesOf(
  listener: LoggerTelemetry,
): Promise<{ lines: string[]; upstream: Upstream }> {
  const lines: string[] = [];
  for (const level of ['warn', 'debug'] as const) {
    jest.spyOn(Logger.prototype, level).mockImplementation((line: unknown) => {
      lines.push(`${level} ${String(line).replace(/ tid=\S+/, '')}`);
    });
  }
  const { get, clock } = await boot({ providers: [Upstream] }, { telemetry: [listener] });
  const upstream = get(Upstream);
  lines.length = 0;
  const sick = (): never => {
    throw new Error('sick');
  };
  await endOf(upstream.call('ada@example.com', sick));
  await endOf(upstream.call('ada@example.com', sick));
  await clock.advance(10);
  await upstream.call('ada@example.com', () => 'well');
  return { lines, upstream };
}

describe('what does the log say of a breaker?', () => {
  const digest = createHash('sha256').update(KEY).digest('hex').slice(0, 8);

  it('each change and each refusal, one line, with a digest of the key', async () => {
    const { lines, upstream } = await linesOf(new LoggerTelemetry());
    const common = `task=Upstream.call`;
    expect(lines).toEqual([
      `warn circuit_opened ${common} retryAfter=10 key=${digest}`,
      `warn circuit_rejected ${common} code=circuit_open retryAfter=10 key=${digest}`,
      `debug circuit_half_opened ${common} key=${digest}`,
      `debug circuit_closed ${common} key=${digest}`,
    ]);
    expect(upstream.opened.map(({ payload }) => payload.circuitKey)).toEqual([KEY]);
  });

  it('the key itself, where that is asked for', async () => {
    const { lines } = await linesOf(new LoggerTelemetry({ keys: true }));
    expect(lines).toHaveLength(4);
    for (const line of lines) expect(line.endsWith(`key=${KEY}`)).toBe(true);
  });
});
