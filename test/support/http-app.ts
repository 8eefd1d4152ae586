import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach } from '@jest/globals';
import type {
  INestApplication,
  ModuleMetadata,
  NestApplicationOptions,
  Type,
} from '@nestjs/common';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test } from '@nestjs/testing';
import { CmdxModule, type CmdxModuleOptions, MemoryStore } from 'nestjs-cmdx';
import { RecordingTelemetry } from 'nestjs-cmdx/testing';

export type AdapterName = 'express' | 'fastify';
export const ADAPTERS: readonly AdapterName[] = ['express', 'fastify'];

export interface HttpScenario {
  readonly controllers?: readonly Type[];
  readonly providers?: ModuleMetadata['providers'];
  readonly imports?: ModuleMetadata['imports'];
  readonly cmdx?: CmdxModuleOptions;
  /** Answers to `request.ip` are taken from `X-Forwarded-For`. */
  readonly trustProxy?: boolean;
  /** Called before the application starts, for `app.useGlobal...`. */
  readonly setUp?: (app: INestApplication) => void;
  readonly options?: NestApplicationOptions;
}

/** What a client saw. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The text as JSON; `undefined` when it is none. */
  readonly body: unknown;
}

/** A real application that listens on a port of its own. */
export interface HttpApp {
  readonly app: INestApplication;
  readonly url: string;
  readonly store: MemoryStore;
  readonly telemetry: RecordingTelemetry;
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  request(path: string, init?: RequestInit): Promise<Answer>;
  close(): Promise<void>;
}

const open: INestApplication[] = [];

/** Closes, after each test of the file, whatever applications it has started. */
export function closeAppsAfterEach(): void {
  afterEach(async () => {
    const apps = open.splice(0);
    // A client that left may keep its connection for seconds; no test waits for that.
    for (const app of apps) (app.getHttpServer() as Server).closeAllConnections();
    await Promise.all(apps.map((app) => app.close()));
  });
}

/** Starts an application on a free port of the loopback interface. */
export async function startHttp(name: AdapterName, scenario: HttpScenario): Promise<HttpApp> {
  const store = new MemoryStore();
  const telemetry = new RecordingTelemetry();
  const app = await create(name, scenario, store, telemetry);
  open.push(app);
  scenario.setUp?.(app);
  await app.listen(0, '127.0.0.1');
  const { port } = app.getHttpServer().address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const request = (path: string, init?: RequestInit): Promise<Answer> => ask(`${url}${path}`, init);
  return {
    app,
    url,
    store,
    telemetry,
    request,
    get: (path, headers = {}) => request(path, { headers }),
    post: (path, body = {}, headers = {}) =>
      request(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      }),
    async close() {
      open.splice(open.indexOf(app), 1);
      await app.close();
    },
  };
}

async function create(
  name: AdapterName,
  scenario: HttpScenario,
  store: MemoryStore,
  telemetry: RecordingTelemetry,
): Promise<INestApplication> {
  const testing = await Test.createTestingModule({
    imports: [
      CmdxModule.forRoot({ store, ...scenario.cmdx, telemetry: [telemetry] }),
      ...(scenario.imports ?? []),
    ],
    controllers: [...(scenario.controllers ?? [])],
    providers: [...(scenario.providers ?? [])],
  }).compile();
  const options = { logger: false, ...scenario.options } as const;
  if (name === 'fastify') {
    const adapter = new FastifyAdapter({
      trustProxy: scenario.trustProxy ?? false,
      forceCloseConnections: true,
    });
    return testing.createNestApplication(adapter as never, options);
  }
  const app = testing.createNestApplication<NestExpressApplication>(options);
  if (scenario.trustProxy) app.set('trust proxy', true);
  return app;
}

async function ask(url: string, init: RequestInit = {}): Promise<Answer> {
  const response = await fetch(url, { redirect: 'manual', ...init });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, body: parse(text) };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
