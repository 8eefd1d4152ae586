import type { Provider } from '@nestjs/common';
import { type CmdxModuleOptions, SystemClock } from 'nestjs-cmdx';
import { RedisStore } from 'nestjs-cmdx/redis';
import { type Application, boot } from './application.js';
import { connected } from './connected.js';

/** An application of these providers with a store of its own on Redis, connected, in real time. */
export async function bootOnRedis(
  url: string,
  providers: Provider[],
  options: CmdxModuleOptions = {},
): Promise<Application> {
  const store = new RedisStore({ url });
  const application = await boot({ providers }, { store, clock: new SystemClock(), ...options });
  await connected(store);
  return application;
}
