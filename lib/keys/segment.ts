import { types } from 'node:util';
import { askAll } from '../awaitable.js';
import { DefinitionError, show } from '../errors/definition.error.js';
import type { Invocation } from '../invocation.js';
import {
  BINDABLE,
  type BindableResolver,
  type HeaderShare,
  isBindable,
  isKeyResolver,
  type KeyResolver,
  type KeyValue,
  type MethodShape,
  type NoFunction,
} from './key-resolver.js';
import { escapePart, toText } from './store-key.js';

/**
 * Composes a key of several: ``segment`${input('tenantId')}:${input('accountId')}` ``. Each part has
 * `%` and `:` escaped, so two different lists of parts never make the same key, as long as a `:`
 * stands between every two of them. A part that turns out blank makes the whole key blank.
 *
 * @throws DefinitionError for a part that could never be one: blank as it is written, or a function
 */
export function segment(
  texts: TemplateStringsArray,
  ...parts: readonly SegmentPart[]
): BindableResolver {
  for (const part of parts) assertPart(part);
  return new CompositeKey(texts, parts);
}

/** A text that is the same for every call, or what makes one of a call. */
export type SegmentPart = string | number | bigint | (KeyResolver & NoFunction);

function assertPart(part: unknown): void {
  const text = typeof part === 'bigint' || Number.isFinite(part) || typeof part === 'string';
  if ((text && part !== '') || isKeyResolver(part)) return;
  throw new DefinitionError(
    `segment\`\`: expected parts that are texts, numbers or key resolvers such as input('x'), got ${show(part)}`,
  );
}

class CompositeKey implements BindableResolver {
  readonly [BINDABLE] = true;

  constructor(
    private readonly texts: readonly string[],
    private readonly parts: readonly SegmentPart[],
  ) {}

  get fromRequest(): boolean {
    return this.parts.some((part) => isBindable(part) && part.fromRequest);
  }

  get async(): boolean {
    return this.parts.some(isAsync);
  }

  get headers(): HeaderShare {
    const shares = this.parts.flatMap((part) => {
      if (isBindable(part)) return part.headers;
      return typeof part === 'object' ? 'none' : [];
    });
    if (shares.length > 0 && shares.every((share) => share === 'all')) return 'all';
    return shares.every((share) => share === 'none') ? 'none' : 'some';
  }

  bind(shape: MethodShape): BindableResolver {
    return new CompositeKey(
      this.texts,
      this.parts.map((part) => (isBindable(part) ? part.bind(shape) : part)),
    );
  }

  call(invocation: Invocation): KeyValue | Promise<KeyValue> {
    return askAll(
      this.parts.map((part) => () => (typeof part === 'object' ? part.call(invocation) : part)),
      (values) => this.#compose(values),
    );
  }

  #compose(values: readonly unknown[]): string | undefined {
    let key = this.texts[0] ?? '';
    for (const [position, value] of values.entries()) {
      const text = toText(value);
      if (text === undefined) return undefined;
      key += escapePart(text) + (this.texts[position + 1] ?? '');
    }
    return key;
  }

  toString(): string {
    return `segment\`${this.texts.join('${...}')}\``;
  }
}

function isAsync(part: SegmentPart): boolean {
  if (isBindable(part)) return part.async;
  return typeof part === 'object' && types.isAsyncFunction(part.call);
}
