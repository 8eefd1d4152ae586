import { andThen, type Awaitable } from '../awaitable.js';
import { InputInvalidError, OutputInvalidError } from '../errors/refusals.js';
import { check, type Checked, type Schema } from '../policies/schema.js';
import type { Run } from './run.js';

/**
 * Checks the arguments, before anything is asked of the store: key resolvers, gates and the body see
 * what the schemas made of them.
 *
 * @throws InputInvalidError with all issues of all arguments
 */
export function checkInputs(run: Run): Awaitable<void> {
  const { inputs } = run.plan;
  if (!inputs) return undefined;
  return andThen(checkArguments(inputs, run.args), (checked) => {
    const issues = checked.flatMap((each) => each.issues ?? []);
    if (issues.length > 0) throw new InputInvalidError({ code: 'input_invalid', issues }, run);
    const parsed = checked.map((each) => ('value' in each ? each.value : undefined));
    run.args = [...parsed, ...run.args.slice(inputs.length)];
  });
}

function checkArguments(
  inputs: readonly (Schema | undefined)[],
  args: readonly unknown[],
): Awaitable<Checked[]> {
  const several = inputs.length > 1;
  const checked = inputs.map((schema, position): Awaitable<Checked> => {
    const value = args[position];
    if (!schema) return { value };
    if (!several) return check(schema, value, '');
    try {
      return check(schema, value, String(position));
    } catch (error) {
      // Told with the others, of which one may still reject: somebody must listen to it.
      return Promise.reject(error as Error);
    }
  });
  return checked.some((each) => each instanceof Promise)
    ? Promise.all(checked)
    : (checked as Checked[]);
}

/**
 * Checks what the body returned.
 *
 * @returns what the schema made of it
 * @throws OutputInvalidError: the work is done all the same
 */
export function checkOutput(run: Run, value: unknown): Awaitable<unknown> {
  const { output } = run.plan;
  if (!output) return value;
  // Until it has said yes: a schema that throws says nothing else about the work than one that refuses.
  run.outputRefused = true;
  return andThen(check(output, value, ''), (checked) => {
    const { issues } = checked;
    if (issues) throw new OutputInvalidError({ code: 'output_invalid', issues }, run);
    run.outputRefused = false;
    return checked.value;
  });
}
