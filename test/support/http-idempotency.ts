import { fromRequest } from 'nestjs-cmdx';
import type { Answer, HttpApp } from './http-app.js';

/** Whose keys they are: what an authentication would have found out. */
export const byUser = fromRequest<{ headers: Record<string, string | undefined> }>(
  (request) => request.headers['x-user'],
);

/** The headers of a request with a key. */
export function keyed(key: string, user = 'ada'): Record<string, string> {
  return { 'idempotency-key': key, 'x-user': user };
}

/** Delivers one request twice, one after the other. */
export async function deliverTwice(
  http: Pick<HttpApp, 'post'>,
  path: string,
  headers: Record<string, string>,
  body: unknown = {},
): Promise<{ readonly first: Answer; readonly again: Answer }> {
  const first = await http.post(path, body, headers);
  return { first, again: await http.post(path, body, headers) };
}

/** Whether an answer is marked as one that was given before. */
export const isReplay = (answer: Answer): boolean =>
  answer.headers.get('idempotent-replayed') === 'true';
