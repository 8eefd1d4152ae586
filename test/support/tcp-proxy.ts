import { once } from 'node:events';
import {
  type AddressInfo,
  createConnection,
  createServer,
  type Server,
  type Socket,
} from 'node:net';

/**
 * A loopback proxy between a client and a server that speaks RESP. It can hold packets back, turn
 * connections into black holes, cut them, and lose exactly the reply of one command.
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

  #refuse = false;
  #loseReplyIn = 0;
  #loseOnly = '';
  #loseReplyTo = '';
  #refuseAfterLoss = false;
  readonly #held = { requests: false, replies: false };
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

  /** What flows that way is held back until `restore()`: a network that loses packets for a while. */
  hold(direction: 'requests' | 'replies' | 'both'): void {
    this.#held.requests ||= direction !== 'replies';
    this.#held.replies ||= direction !== 'requests';
  }

  /** Delivers what was held back, as a network does that works again, and accepts connections. */
  restore(): void {
    this.#refuse = false;
    this.#held.requests = false;
    this.#held.replies = false;
    for (const pair of this.#pairs) pair.flush();
  }

  /** Today's connections swallow everything from now on, without an end; new ones work. */
  blackHole(): void {
    for (const pair of this.#pairs) pair.dead = true;
  }

  /** Breaks all connections. */
  cut(): void {
    for (const pair of this.#pairs) pair.destroy();
  }

  /** Breaks all connections and every new one. */
  refuse(): void {
    this.#refuse = true;
    this.cut();
  }

  /**
   * Forwards the n-th command from now, lets the server execute it, and cuts instead of its reply.
   *
   * @param only counts the packets with this text in them
   * @param andRefuse also refuses new connections from then on
   */
  loseReplyOf(nth = 1, { only = '', andRefuse = false } = {}): void {
    this.#loseReplyIn = nth;
    this.#loseOnly = only;
    this.#refuseAfterLoss = andRefuse;
  }

  /** The same for the next packet with this text in it, whatever protocol the server speaks. */
  loseReplyTo(text: string): void {
    this.#loseReplyTo = text;
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
    const pair = new Pair(client, createConnection(targetPort, '127.0.0.1'));
    this.#pairs.add(pair);
    client.on('data', (data) => {
      this.#count(data, pair);
      if (this.#loseReplyTo !== '' && data.includes(this.#loseReplyTo)) {
        this.#loseReplyTo = '';
        pair.loses = true;
      }
      pair.forward('requests', data, this.#held.requests);
    });
    pair.server.on('data', (data) => {
      if (pair.loses) {
        this.#refuse ||= this.#refuseAfterLoss;
        pair.destroy();
        return;
      }
      this.onReply?.(data);
      pair.forward('replies', data, this.#held.replies);
    });
    const close = (): void => {
      this.#pairs.delete(pair);
      pair.destroy();
    };
    for (const socket of [client, pair.server]) socket.on('close', close).on('error', close);
  }

  #count(data: Buffer, pair: Pair): void {
    const commands = countCommands(data);
    this.bytesFromClient += data.length;
    this.commandsFromClient += commands;
    if (this.#loseReplyIn === 0 || commands === 0 || !data.includes(this.#loseOnly)) return;
    this.#loseReplyIn = Math.max(0, this.#loseReplyIn - commands);
    pair.loses = this.#loseReplyIn === 0;
  }
}

/** The two halves of one connection. */
class Pair {
  dead = false;
  loses = false;
  readonly #waiting: { direction: 'requests' | 'replies'; data: Buffer }[] = [];

  constructor(
    readonly client: Socket,
    readonly server: Socket,
  ) {}

  forward(direction: 'requests' | 'replies', data: Buffer, held: boolean): void {
    if (this.dead) return;
    if (held) this.#waiting.push({ direction, data });
    else (direction === 'requests' ? this.server : this.client).write(data);
  }

  flush(): void {
    for (const { direction, data } of this.#waiting.splice(0)) this.forward(direction, data, false);
  }

  destroy(): void {
    this.client.destroy();
    this.server.destroy();
  }
}

/** Commands are arrays of bulk strings; one always begins at the start of a line. */
function countCommands(data: Buffer): number {
  return data.toString('latin1').match(/(?:^|\n)\*\d+\r\n\$/g)?.length ?? 0;
}
