import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from '@jest/globals';
import ts from 'typescript';

const FIXTURES = join(dirname(fileURLToPath(import.meta.url)), 'fixtures');
const ROOT = join(FIXTURES, '../../..');
const files = readdirSync(FIXTURES).map((name) => join(FIXTURES, name));

/** A source that is wrong in known ways, to see that the check below would notice. */
const CONTROL = join(FIXTURES, 'control.ts');
const CONTROL_TEXT = `
import { LockWith } from 'nestjs-cmdx';
export class Control {
  // @ts-expect-error: this is accepted, so nothing is reported
  @LockWith((id: string) => id)
  async accepted(_id: string): Promise<void> {}

  // @ts-expect-error: another reason than the one the compiler gives
  @LockWith((id: number) => id)
  async refused(_id: string): Promise<void> {}

  @LockWith((id: number) => id)
  async unexpected(_id: string): Promise<void> {}
}
`;

/**
 * What is wrong with a fixture: an expected error that does not come, comes for another reason than
 * its line says, or an error that nobody expected. The plain `@ts-expect-error` takes any reason.
 */
let check: (file: string) => string[];

beforeAll(() => {
  check = checker();
}, 60_000);

describe('does the compiler accept what fits, and refuse what does not?', () => {
  it.each(files.map((file) => [file.slice(FIXTURES.length + 1), file]))('%s', (_name, file) => {
    expect(readFileSync(file, 'utf8')).toContain('@ts-expect-error: ');
    expect(check(file)).toEqual([]);
  });

  it('and would a wrong expectation be noticed?', () => {
    expect(check(CONTROL)).toEqual([
      'line 4: expected an error, got none',
      expect.stringMatching(/^line 8: expected "another reason than .*", got ".*does not accept/s),
      expect.stringMatching(/^line 12: unexpected ".*does not accept the parameters/s),
    ]);
  });
});

function checker(): (file: string) => string[] {
  const { config } = ts.readConfigFile(join(ROOT, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, ROOT);
  const host = ts.createCompilerHost(options);
  const readFile = host.readFile.bind(host);
  host.readFile = (file) => (file === CONTROL ? CONTROL_TEXT : readFile(file));
  host.getSourceFile = (file, version) => {
    const text = host.readFile(file);
    if (text === undefined) return undefined;
    // The errors themselves are wanted here, with their reasons.
    const visible = file.startsWith(FIXTURES)
      ? text.replaceAll('@ts-expect-error', 'EXPECTED')
      : text;
    return ts.createSourceFile(file, visible, version, true);
  };
  const program = ts.createProgram([...files, CONTROL], options, host);
  return (file) => {
    const source = program.getSourceFile(file) as ts.SourceFile;
    const errors = new Map<number, string>();
    for (const diagnostic of ts.getPreEmitDiagnostics(program, source)) {
      const { line } = source.getLineAndCharacterOfPosition(diagnostic.start ?? 0);
      const text = ts.flattenDiagnosticMessageText(diagnostic.messageText, '\n');
      errors.set(line, `${errors.get(line) ?? ''}${text}\n`);
    }
    const expectations = source.text.split('\n').flatMap((text, line) => {
      const reason = /^\s*\/\/ EXPECTED: (.+)$/.exec(text)?.[1];
      return reason === undefined ? [] : [{ line, reason }];
    });
    const faults = expectations.flatMap(({ line, reason }) => {
      const error = errors.get(line + 1);
      errors.delete(line + 1);
      if (error === undefined) return [`line ${line + 1}: expected an error, got none`];
      return error.includes(reason)
        ? []
        : [`line ${line + 1}: expected "${reason}", got "${error}"`];
    });
    return [
      ...faults,
      ...[...errors].map(([line, error]) => `line ${line + 1}: unexpected "${error}"`),
    ];
  };
}
