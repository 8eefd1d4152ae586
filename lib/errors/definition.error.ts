import { brand, hasBrand } from './brand.js';

/**
 * Something written in the code cannot work: a wrong option, a decorator in the wrong place, an
 * impossible combination. Raised while classes are defined or while the application boots.
 */
export class DefinitionError extends Error {
  readonly code = 'definition';

  constructor(message: string) {
    super(message);
    this.name = 'DefinitionError';
    brand(this, 'definition');
  }
}

/** Whether `error` is a {@link DefinitionError}, from whichever copy of the package. */
export function isDefinitionError(error: unknown): error is DefinitionError {
  return hasBrand(error, 'definition');
}

/** A decorated method was called on an instance that no Nest application with the module made. */
export class NotManagedError extends Error {
  readonly code = 'not_managed';

  constructor(readonly task: string) {
    super(
      `${task} is guarded, but this instance was not made by a Nest application that imports CmdxModule.forRoot(), ` +
        `or it was called from its constructor. Provide the class with useClass, build it with moduleRef.create(), ` +
        `or, in a unit test, use withoutPolicies(instance) or import 'nestjs-cmdx/testing/bypass'.`,
    );
    this.name = 'NotManagedError';
    brand(this, 'not_managed');
  }
}

/** Whether `error` is a {@link NotManagedError}, from whichever copy of the package. */
export function isNotManagedError(error: unknown): error is NotManagedError {
  return hasBrand(error, 'not_managed');
}

/** A custom limiter answered something that is not an admission. */
export class LimiterError extends Error {
  readonly code = 'limiter';

  constructor(
    readonly limiter: string,
    readonly task: string,
    got: unknown,
  ) {
    super(
      `Limiter "${limiter}" of ${task}: expected an Admission { admitted: boolean, count?, level?, retryAfter?, limiter? }, got ${show(got)}`,
    );
    this.name = 'LimiterError';
    brand(this, 'limiter');
  }
}

/** Words a value for an error message: what it is, shortened, never a whole object. */
export function show(value: unknown): string {
  switch (typeof value) {
    case 'string': {
      const text = JSON.stringify(value);
      return text.length > 80 ? `${text.slice(0, 77)}..."` : text;
    }
    case 'bigint':
      return `${value}n`;
    case 'function':
      return value.name ? `function ${value.name}` : 'a function';
    case 'symbol':
      return value.toString();
    case 'object':
      if (value === null) return 'null';
      if (Array.isArray(value)) return `an array of ${value.length}`;
      return `an object (${Object.getPrototypeOf(value)?.constructor?.name ?? 'no class'})`;
    default:
      return String(value);
  }
}
