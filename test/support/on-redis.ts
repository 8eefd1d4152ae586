import type { Provider } from '@nestjs/common';
import { type CmdxModuleOptions, SystemClock } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { type Application, boot } from './application.js';

/** An application of these providers with a store of its own on Redis, in real time. */
export function bootOnRedis(
  url: string,
  providers: Provider[],
  options: CmdxModuleOptions = {},
): Promise<Application> {
  const store = new RedisStore({ url });
  return boot({ providers }, { store, clock: new SystemClock(), ...options });
}
