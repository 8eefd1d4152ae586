import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  arg,
  CmdxModule,
  LockWith,
  RateLimit,
  Store,
  StoreKey,
  Telemetry,
  TELEMETRY_EVENTS,
} from 'nestjs-cmdx';
import { interleave, type Summary, summarize } from './statistics.js';

const NEVER_REACHED = { max: 1_000_000_000, per: '1h' } as const;
/** Drains faster than one caller fills it. */
const NEVER_FULL = { max: 1_000_000, per: '1ms', limiter: 'leaky_bucket' } as const;
const DENIES = { max: 0, per: '1h' } as const;
/** A thrown refusal carries a stack, so fewer of them take as long. */
const SHARE_OF_THROWING = 0.2;
const SOMEBODY = 'somebody else';

/** The same method under each set of policies. Its last argument comes back, to see who ran. */
@Injectable()
class Work {
  async bare(_key: string, value: number): Promise<number> {
    return value;
  }

  @RateLimit(arg(0), NEVER_REACHED)
  async limit(_key: string, value: number): Promise<number> {
    return value;
  }

  @RateLimit(arg(0), NEVER_FULL)
  async leaky(_key: string, value: number): Promise<number> {
    return value;
  }

  @LockWith(arg(0))
  async lock(_key: string, value: number): Promise<number> {
    return value;
  }

  @LockWith(arg(0))
  @RateLimit(arg(0), NEVER_REACHED)
  async lockAndLimit(_key: string, value: number): Promise<number> {
    return value;
  }

  @RateLimit(arg(0), DENIES)
  async denied(_key: string, value: number): Promise<number> {
    return value;
  }

  @RateLimit(arg(0), { ...DENIES, onLimit: 'skip' })
  async deniedSkip(_key: string, value: number): Promise<number | undefined> {
    return value;
  }

  @LockWith(arg(0))
  async busy(_key: string, value: number): Promise<number> {
    return value;
  }

  @LockWith(arg(0), { onBusy: 'skip' })
  async busySkip(_key: string, value: number): Promise<number | undefined> {
    return value;
  }

  @LockWith(arg(0), { if: false })
  @RateLimit(arg(0), { ...NEVER_REACHED, if: false })
  async gated(_key: string, value: number): Promise<number> {
    return value;
  }
}

@Module({ imports: [CmdxModule.forRoot()], providers: [Work] })
class WorkModule {}

interface Variant {
  readonly label: string;
  readonly method: keyof Work;
  /** What the caller gets: the method's value, `undefined`, or an error with this code. */
  readonly gets: 'value' | 'nothing' | 'rate_limited' | 'busy';
}

const VARIANTS: readonly Variant[] = [
  { label: 'limit (fixed_window)', method: 'limit', gets: 'value' },
  { label: 'limit (leaky_bucket)', method: 'leaky', gets: 'value' },
  { label: 'lock', method: 'lock', gets: 'value' },
  { label: 'lock + limit', method: 'lockAndLimit', gets: 'value' },
  { label: 'limit denied, throws', method: 'denied', gets: 'rate_limited' },
  { label: 'limit denied, skips', method: 'deniedSkip', gets: 'nothing' },
  { label: 'lock busy, throws', method: 'busy', gets: 'busy' },
  { label: 'lock busy, skips', method: 'busySkip', gets: 'nothing' },
  { label: 'nothing enabled (if: false)', method: 'gated', gets: 'value' },
];
const BARE: Variant = { label: 'bare', method: 'bare', gets: 'value' };

export interface CallRow {
  readonly label: string;
  readonly keys: number;
  readonly subscribers: number;
  /** Nanoseconds per call above the bare method. */
  readonly above: Summary;
}

export interface CallReport {
  /** Nanoseconds per awaited call of the bare method. */
  readonly bare: Summary;
  readonly rows: readonly CallRow[];
}

export interface CallSettings {
  readonly rounds: number;
  readonly callsPerRound: number;
  readonly manyKeys: number;
}

/** Nanoseconds per guarded call in memory, above the same method unguarded. */
export async function measureCalls(settings: CallSettings): Promise<CallReport> {
  const app = await NestFactory.createApplicationContext(WorkModule, { logger: false });
  try {
    const work = app.get(Work);
    const keySets = [1, settings.manyKeys].map(makeKeys);
    await occupy(app.get(Store), keySets[1] ?? []);
    for (const variant of [BARE, ...VARIANTS]) await assertGets(work, variant);

    const telemetry = app.get(Telemetry);
    const rows: CallRow[] = [];
    const bare: number[] = [];
    for (const subscribers of [0, 1]) {
      const ends = subscribers
        ? TELEMETRY_EVENTS.map((name) => telemetry.subscribe(name, () => {}))
        : [];
      for (const keys of keySets) {
        const variants = [BARE, ...VARIANTS];
        // Compiled before it counts.
        for (const variant of variants) await time(work, variant, keys, settings.callsPerRound);
        const [ofBare = [], ...ofOthers] = await interleave(variants, settings.rounds, (variant) =>
          time(work, variant, keys, settings.callsPerRound),
        );
        bare.push(...ofBare);
        for (const [position, values] of ofOthers.entries()) {
          rows.push({
            label: VARIANTS[position]?.label ?? '',
            keys: keys.length,
            subscribers,
            above: summarize(values.map((value, round) => value - (ofBare[round] ?? 0))),
          });
        }
      }
      for (const end of ends) end();
    }
    return { bare: summarize(bare), rows };
  } finally {
    await app.close();
  }
}

function makeKeys(count: number): string[] {
  return Array.from({ length: count }, (_, position) => `account-${position}`);
}

/** Lets somebody else hold the leases of the methods that are to be refused. */
async function occupy(store: Store, keys: readonly string[]): Promise<void> {
  for (const task of ['Work.busy', 'Work.busySkip']) {
    for (const key of keys) {
      await store.set(StoreKey.compose('cmdx:lock', task, key), SOMEBODY, { ttl: '1h' });
    }
  }
}

/** A benchmark of something that does not guard would be fast, and worthless. */
async function assertGets(work: Work, { label, method, gets }: Variant): Promise<void> {
  const got = await work[method]('account-0', 7).then(
    (value) => (value === 7 ? 'value' : 'nothing'),
    (error: unknown) => (error as { code?: string }).code,
  );
  if (got !== gets) throw new Error(`bench "${label}": expected ${gets}, got ${got}`);
}

/**
 * CPU time, not the clock's: what else runs on the machine must not count. It includes the garbage
 * collection that the calls cause.
 *
 * @returns nanoseconds per call
 */
async function time(
  work: Work,
  { method, gets }: Variant,
  keys: readonly string[],
  callsPerRound: number,
): Promise<number> {
  const throws = gets === 'busy' || gets === 'rate_limited';
  const calls = Math.ceil(throws ? callsPerRound * SHARE_OF_THROWING : callsPerRound);
  const started = process.cpuUsage();
  if (throws) await callRefused(work, method, keys, calls);
  else await call(work, method, keys, calls);
  const { user, system } = process.cpuUsage(started);
  return ((user + system) * 1_000) / calls;
}

async function call(
  work: Work,
  method: keyof Work,
  keys: readonly string[],
  calls: number,
): Promise<void> {
  for (let i = 0; i < calls; i++) await work[method](keys[i % keys.length] as string, i);
}

async function callRefused(
  work: Work,
  method: keyof Work,
  keys: readonly string[],
  calls: number,
): Promise<void> {
  for (let i = 0; i < calls; i++) {
    try {
      await work[method](keys[i % keys.length] as string, i);
    } catch {
      // The refusal is what is measured.
    }
  }
}
