import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { borrowPostgres, type PostgresDatabases } from '../support/postgres-server.js';
import { README, snippets } from '../support/readme.js';
import { type SampleApp, startSampleApp } from '../support/sample-app.js';
import { until, waitFor } from '../support/time.js';

describe('does the tour with curl show the real answers?', () => {
  let databases: PostgresDatabases;
  let sample: SampleApp;

  beforeAll(async () => {
    databases = await borrowPostgres();
    sample = await startSampleApp();
  }, 60_000);
  afterAll(async () => {
    await sample.stop();
    await databases.stop();
  });

  it('line by line', async () => {
    const tour = snippets(README, 'console')
      .map(({ text }) => text)
      .join('');
    for (const step of tour.split(/^\$ /m).slice(1)) {
      const [command = '', ...shown] = step.trimEnd().split('\n');
      const played = numbered(normalised(await play(command)), ids.played);
      expect(played).toEqual(numbered(normalised(shown.join('\n')), ids.shown));
    }
    expect(ids.shown).toHaveLength(2);
  }, 60_000);

  /** The payments so far, in the order of their first appearance. */
  const ids = { played: [] as string[], shown: [] as string[] };

  /** Two answers about one payment stay alike, whatever number it got this time. */
  function numbered(text: string, seen: string[]): string {
    return text.replace(/pay_\w+/g, (id) => {
      if (!seen.includes(id)) seen.push(id);
      return `pay_${seen.indexOf(id)}`;
    });
  }

  let background: Promise<string> | undefined;

  /** Plays the few forms of commands that the tour is written in. @returns what the terminal shows */
  async function play(command: string): Promise<string> {
    if (command === 'wait') return (await background) ?? '';
    if (/^DATABASE_URL=\S+ npm start$/.test(command)) {
      await sample.stop();
      sample = await startSampleApp('', await databases.createDatabase());
      return '';
    }
    const pause = /^sleep (\d+)$/.exec(command);
    if (pause) {
      await waitFor(Number(pause[1]) * 1_000);
      return '';
    }
    const race = /^for i in ([\d ]+); do (.+) & done; wait$/.exec(command);
    if (race) {
      const calls = (race[1] ?? '').split(' ').map(() => curl(race[2] ?? ''));
      // Whichever of them was the first.
      return (await Promise.all(calls)).toSorted().join('\n');
    }
    const loop = /^for i in ([\d ]+); do (.+); done$/.exec(command);
    if (loop) {
      const lines: string[] = [];
      for (const _ of loop[1]?.split(' ') ?? []) lines.push(await curl(loop[2] ?? ''));
      return lines.join('\n');
    }
    if (!command.endsWith(' &')) return curl(command);
    const begun = (): number => sample.output().split(/lock_acquired|idempotency_claimed/).length;
    const before = begun();
    background = curl(command.slice(0, -2));
    await until(() => begun() > before, 'the lease or the claim');
    return '';
  }

  async function curl(command: string): Promise<string> {
    const form =
      /^curl -s( -i)?( -X POST)? localhost:3000(\S+)((?: -H '[^']+')*)(?: -d '([^']+)')?$/;
    const [, head, post, path = '', sent = '', body] = form.exec(command) ?? [];
    expect(path).not.toBe('');
    const pairs = [...sent.matchAll(/'([^:']+): ([^']+)'/g)];
    const fields = Object.fromEntries(pairs.map(([, name, value]) => [name, value]));
    const { status, headers, text } = await (post
      ? sample.post(path, body && JSON.parse(body), fields)
      : sample.get(path));
    if (!head) return text;
    const lines = ['Retry-After', 'Idempotent-Replayed', 'Content-Type'].flatMap((name) => {
      const value = headers.get(name);
      return value === null ? [] : [`${name}: ${value}`];
    });
    return [`HTTP/1.1 ${status}`, ...lines, '', text].join('\n');
  }

  /** Times pass differently each time; reason phrases are for people. */
  function normalised(text: string): string {
    return text
      .replace(/^(HTTP\/1.1 \d+) .+$/m, '$1')
      .replace(/"retryAfter":(\d\d)\.?\d*/g, (_, seconds: string) => `"retryAfter":${seconds[0]}x`)
      .replace(/"retryAfter":[45](?:\.\d+)?\}/g, '"retryAfter":5}')
      .replace(/"epoch":\d+/g, '"epoch":0')
      .replace(/^Retry-After: (?:60|5\d)$/m, 'Retry-After: 5x');
  }
});
