import { once } from 'node:events';
import {
  type AddressInfo,
  createConnection,
  createServer,
  type Server,
  type Socket,
} from 'node:net';

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
}

/**
 * A loopback proxy between a client and a server that speaks RESP. It can swallow packets, cut
 * connections, and lose exactly the reply of one command.
 */
export class TcpProxy {
  /** Bytes that clients have sent. */
  bytesFromClient = 0;
  /** Commands that clients have sent. */
  commandsFromClient = 0;
  /** Connections that clients have opened. */
  connections = 0;
  /** Sees what the server answers. */
  onReply: ((data: Buffer) => void) | undefined;

  #swallowRequests = false;
  #swallowReplies = false;
  #refuse = false;
  #loseReplyIn = 0;
  readonly #pairs = new Set<Pair>();

  private constructor(
    private readonly listener: Server,
    readonly port: number,
  ) {}

  static async start(targetPort: number): Promise<TcpProxy> {
    const listener = createServer().listen(0, '127.0.0.1');
    await once(listener, 'listening');
    const proxy = new TcpProxy(listener, (listener.address() as AddressInfo).port);
    listener.on('connection', (client) => proxy.#accept(client, targetPort));
    return proxy;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** What flows that way disappears from now on; the connections stay open. */
  swallow(direction: 'requests' | 'replies' | 'both'): void {
    this.#swallowRequests ||= direction !== 'replies';
    this.#swallowReplies ||= direction !== 'requests';
  }

  /** Lets everything through again. */
  restore(): void {
    this.#swallowRequests = false;
    this.#swallowReplies = false;
    this.#refuse = false;
  }

  /** Breaks all connections. */
  cut(): void {
    for (const { client, server } of this.#pairs) {
      client.destroy();
      server.destroy();
    }
  }

  /** Breaks all connections and every new one. */
  refuse(): void {
    this.#refuse = true;
    this.cut();
  }

  /** Forwards the n-th command from now, lets the server execute it, and cuts instead of its reply. */
  loseReplyOf(nth = 1): void {
    this.#loseReplyIn = nth;
  }

  async stop(): Promise<void> {
    this.cut();
    this.listener.close();
    await once(this.listener, 'close');
  }

  #accept(client: Socket, targetPort: number): void {
    this.connections += 1;
    if (this.#refuse) {
      client.destroy();
      return;
    }
    const server = createConnection(targetPort, '127.0.0.1');
    const pair = { client, server };
    this.#pairs.add(pair);
    let losing = false;
    client.on('data', (data) => {
      const commands = countCommands(data);
      this.bytesFromClient += data.length;
      this.commandsFromClient += commands;
      if (this.#loseReplyIn > 0 && commands > 0) {
        this.#loseReplyIn -= commands;
        losing = this.#loseReplyIn <= 0;
        if (losing) this.#loseReplyIn = 0;
      }
      if (!this.#swallowRequests) server.write(data);
    });
    server.on('data', (data) => {
      if (losing) {
        client.destroy();
        return;
      }
      this.onReply?.(data);
      if (!this.#swallowReplies) client.write(data);
    });
    const close = (): void => {
      this.#pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) socket.on('close', close).on('error', close);
  }
}

/** Commands are arrays of bulk strings; one always begins at the start of a line. */
function countCommands(data: Buffer): number {
  return data.toString('latin1').match(/(?:^|\n)\*\d+\r\n\$/g)?.length ?? 0;
}
