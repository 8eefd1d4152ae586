import autocannon, { type Request } from 'autocannon';
import { KEY_HEADER, type LoadOrder, type LoadReport } from './http-load-order.js';

/** Sends load from a process of its own, so that its work is not the server's. */
process.on('message', async (order: LoadOrder) => {
  let connection = 0;
  const result = await autocannon({
    url: `http://127.0.0.1:${order.port}/transfers`,
    connections: order.connections,
    duration: order.seconds,
    setupClient: (client) => client.setRequests(requestsFrom(connection++, order)),
  });
  const report: LoadReport = {
    answered: result['2xx'],
    others: result.non2xx + result.errors,
    seconds: (result.finish.getTime() - result.start.getTime()) / 1_000,
  };
  process.send?.(report);
});

/** Every connection goes round the keys from a place of its own. */
function requestsFrom(connection: number, { keys, connections }: LoadOrder): Request[] {
  const first = Math.floor((connection * keys) / connections);
  return Array.from({ length: keys }, (_, step) => ({
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      [KEY_HEADER]: `account-${(first + step) % keys}`,
    },
    body: JSON.stringify({ to: 'acct_42', amount: 100 }),
  }));
}

process.send?.('ready');
