import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What a dependency answers. */
export interface UpstreamAnswer {
  /** 200 by default. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Somebody else's service, on a free port of the loopback interface. */
export interface Upstream {
  readonly url: string;
  /** Method, path and headers of every request, in order. */
  readonly requests: readonly IncomingMessage[];
  /** May be changed at any time; `undefined` lets a request hang. */
  answer: (request: IncomingMessage) => UpstreamAnswer | undefined;
  close(): Promise<void>;
}

export async function startUpstream(answer: Upstream['answer']): Promise<Upstream> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    const { status = 200, headers = {}, body = '' } = upstream.answer(request) ?? { status: 0 };
    if (status > 0) response.writeHead(status, headers).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const upstream: Upstream = {
    url: `http://127.0.0.1:${port}`,
    requests,
    answer,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return upstream;
}
