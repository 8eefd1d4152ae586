import { afterEach } from '@jest/globals';
import type { ModuleMetadata } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { Cmdx, CmdxModule, type CmdxModuleOptions, MemoryStore, Store } from 'nestjs-cmdx';
import { ManualClock, RecordingTelemetry } from 'nestjs-cmdx/testing';

/** A Nest application without a server, on the memory store, with a clock that stands still. */
export interface Application {
  readonly module: TestingModule;
  readonly clock: ManualClock;
  readonly store: Store;
  readonly telemetry: RecordingTelemetry;
  readonly cmdx: Cmdx;
  /** The provider of a class; a method of its own so that a test reads in one line. */
  get<T>(token: abstract new (...args: never[]) => T): T;
  close(): Promise<void>;
}

const open: Application[] = [];

/** Closes, after each test of the file, whatever applications it has booted. */
export function closeApplicationsAfterEach(): void {
  afterEach(async () => {
    await Promise.all(open.splice(0).map((application) => application.module.close()));
  });
}

/** Boots an application of these providers. @throws whatever Nest or the library says at boot */
export async function boot(
  metadata: ModuleMetadata,
  options: CmdxModuleOptions = {},
): Promise<Application> {
  const clock = new ManualClock();
  const telemetry = new RecordingTelemetry();
  const store = new MemoryStore();
  const module = await Test.createTestingModule({
    ...metadata,
    imports: [
      CmdxModule.forRoot({
        clock,
        store,
        // A body that a failed test left inside must not hold the rest of the file up.
        shutdownTimeout: '500ms',
        ...options,
        telemetry: [telemetry, ...(options.telemetry ?? [])],
      }),
      ...(metadata.imports ?? []),
    ],
  }).compile();
  await module.init();
  const application: Application = {
    module,
    clock,
    store: module.get(Store),
    telemetry,
    cmdx: module.get(Cmdx),
    get: (token) => module.get(token as never),
    async close() {
      open.splice(open.indexOf(application), 1);
      await module.close();
    },
  };
  open.push(application);
  return application;
}
