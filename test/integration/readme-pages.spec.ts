import { describe, expect, it } from '@jest/globals';
import {
  compileSnippets,
  deadLinks,
  LIFECYCLE,
  README,
  RECIPES,
  snippets,
  writeSnippets,
} from '../support/readme.js';

describe('are the pages sound?', () => {
  it('do their snippets compile, strictly?', async () => {
    const all = [README, RECIPES].flatMap((page) =>
      snippets(page, 'ts').map((snippet) => ({
        ...snippet,
        heading: `${page.path} ${snippet.heading}`,
      })),
    );
    expect(writeSnippets('compiled', all).size).toBe(all.length);
    expect(await compileSnippets('compiled')).toBe('');
  }, 120_000);

  it.each([README, RECIPES, LIFECYCLE])('does every link of $path lead somewhere?', (page) => {
    expect(deadLinks(page)).toEqual([]);
  });

  it('would a dead link be found?', () => {
    const links = [
      '[a](#none)',
      '[b](docs/none.md)',
      '[c](docs/recipes.md#none)',
      '[d](sample-app)',
      '[e](#here)',
      '[f](docs/recipes.md#recipes)',
    ];
    const text = `# Here\n${links.join('\n')}\n`;
    expect(deadLinks({ path: 'README.md', text })).toEqual([
      '#none',
      'docs/none.md',
      'docs/recipes.md#none',
    ]);
  });
});
