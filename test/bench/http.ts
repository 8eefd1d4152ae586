import { type Child, startChild } from './child.js';
import type { LoadOrder, LoadReport } from './http-load-order.js';
import type { Adapter, Guard, ServerOrder } from './http-server.js';
import { interleave, type Summary, summarize } from './statistics.js';

const SERVER_CORE = 0;
const LOAD_CORE = 1;
const GUARDS: readonly Guard[] = ['bare', 'imported', 'limit', 'lock+limit', 'throttler'];

/**
 * A limit that is never reached, in two sizes. `@nestjs/throttler` keeps the time of every start in
 * its window and walks over all of them at each request, so what it costs depends on how many
 * starts one key has had within a minute, the window of the sample application; ours does not.
 */
export const TRAFFIC = {
  'many small callers': { keys: 1_000, max: 10_000 },
  'one big caller': { keys: 1, max: 1_000_000 },
} as const;
export type Traffic = keyof typeof TRAFFIC;

interface Subject {
  readonly traffic: Traffic;
  readonly guard: Guard;
}

/** Every guard on one adapter. One key for all connections would only measure waiting for the lock. */
const ALL: readonly Subject[] = [
  ...GUARDS.map((guard) => ({ traffic: 'many small callers', guard }) as const),
  ...(['limit', 'throttler'] as const).map(
    (guard) => ({ traffic: 'one big caller', guard }) as const,
  ),
];
/** Starting a server takes longer than measuring it, so a quick run has fewer of them. */
const FEW = ALL.filter(
  ({ guard, traffic }) =>
    traffic === 'many small callers' && ['bare', 'limit', 'throttler'].includes(guard),
);

export interface HttpRow {
  readonly adapter: Adapter;
  readonly traffic: Traffic;
  readonly guard: Guard;
  readonly perSecond: Summary;
  /** CPU microseconds of the server process per request. */
  readonly cpuUs: Summary;
}

export interface HttpSettings {
  /** Whether to leave out what a look at the whole does not need. */
  readonly few: boolean;
  readonly rounds: number;
  /** How long each server is warmed up, before the rounds. */
  readonly warmUpSeconds: number;
  /** How long a round of one server takes. */
  readonly seconds: number;
  readonly connections: number;
}

/** Requests per second, and what one costs the server, of one small application on both adapters. */
export async function measureHttp(settings: HttpSettings): Promise<HttpRow[]> {
  const load = await startChild('http-load.ts', LOAD_CORE);
  try {
    return [
      ...(await measureAdapter('express', settings, load)),
      ...(await measureAdapter('fastify', settings, load)),
    ];
  } finally {
    await load.stop();
  }
}

/** Ours over the throttler's, in requests per second. */
export function ratioToThrottler(
  rows: readonly HttpRow[],
  adapter: Adapter,
  traffic: Traffic,
): number {
  const of = (guard: Guard): number =>
    rows.find((row) => row.adapter === adapter && row.traffic === traffic && row.guard === guard)
      ?.perSecond.median ?? Number.NaN;
  return of('limit') / of('throttler');
}

async function measureAdapter(
  adapter: Adapter,
  { few, rounds, warmUpSeconds, seconds, connections }: HttpSettings,
  load: Child,
): Promise<HttpRow[]> {
  const subjects = few ? FEW : ALL;
  const servers = await Promise.all(
    subjects.map(({ guard, traffic }) => {
      const order: ServerOrder = { adapter, guard, max: TRAFFIC[traffic].max };
      return startChild('http-server.ts', SERVER_CORE, [JSON.stringify(order)]);
    }),
  );
  const measure = (position: number, forSeconds = seconds): Promise<Measured> => {
    const { keys } = TRAFFIC[(subjects[position] as Subject).traffic];
    return run(servers[position] as Child, load, { seconds: forSeconds, connections, keys });
  };
  try {
    const positions = [...subjects.keys()];
    // Compiled before it counts.
    for (const position of positions) await measure(position, warmUpSeconds);
    const values = await interleave(positions, rounds, (position) => measure(position));
    return subjects.map((subject, position) => ({
      adapter,
      ...subject,
      perSecond: summarize((values[position] ?? []).map((value) => value.perSecond)),
      cpuUs: summarize((values[position] ?? []).map((value) => value.cpuUs)),
    }));
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

interface Measured {
  readonly perSecond: number;
  readonly cpuUs: number;
}

async function run(server: Child, load: Child, order: Omit<LoadOrder, 'port'>): Promise<Measured> {
  const before = await server.ask<NodeJS.CpuUsage>('cpu');
  const report = await load.ask<LoadReport>({ ...order, port: server.greeting as number });
  const after = await server.ask<NodeJS.CpuUsage>('cpu');
  if (report.answered === 0 || report.others > 0) {
    throw new Error(`bench: ${report.others} requests were not answered, ${report.answered} were`);
  }
  const cpu = after.user + after.system - before.user - before.system;
  return { perSecond: report.answered / report.seconds, cpuUs: cpu / report.answered };
}
