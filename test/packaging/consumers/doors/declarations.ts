import {
  arg,
  clientIp,
  type Cmdx,
  currentInvocation,
  describePolicies,
  fromRequest,
  header,
  input,
  LockWith,
  Named,
  OnTelemetry,
  perTask,
  RateLimit,
  RegisterLimiter,
  segment,
  type Store,
  type Telemetry,
} from 'nestjs-cmdx';

/**
 * Never run: what a project exports without writing its type, with `declaration: true` as `nest new`
 * sets it. The compiler has to find a name for each of the types among our exports.
 */
export const keys = {
  first: arg(0),
  account: input('accountId'),
  tenant: header('x-tenant'),
  client: clientIp(),
  user: fromRequest<{ user: { id: string } }>((request) => request.user.id),
  both: segment`${header('x-tenant')}:${arg(0)}`,
  everybody: perTask,
};

export const nightly = LockWith('nightly', { onBusy: 'skip' });
export const perAccount = (ttl: number) => LockWith((id: string) => id, { ttl });
export const fiveAMinute = RateLimit({ max: 5, per: '1m' });
export const named = Named('accountId');
export const closed = RegisterLimiter('closed', () => ({ admitted: false }));
export const onBusy = OnTelemetry('lock_busy');

export class Facade {
  constructor(
    private readonly cmdx: Cmdx,
    private readonly store: Store,
    private readonly telemetry: Telemetry,
  ) {}

  get parts() {
    return { cmdx: this.cmdx, store: this.store, telemetry: this.telemetry };
  }

  run(job: () => Promise<string>) {
    return this.cmdx.execute(job);
  }

  inspect(key: string) {
    return this.store.inspect(key);
  }

  listen() {
    return this.telemetry.subscribe('lock_busy', () => undefined);
  }

  running() {
    return currentInvocation();
  }

  policies() {
    return describePolicies(Facade, 'run');
  }
}
