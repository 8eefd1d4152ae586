import { types } from 'node:util';
import type { Invocation } from '../invocation.js';
import {
  BINDABLE,
  type BindableResolver,
  isBindable,
  type KeyResolver,
  type KeyValue,
  type MethodShape,
} from './key-resolver.js';
import { escapePart, toText } from './store-key.js';

/**
 * Composes a key of several: ``segment`${input('tenantId')}:${input('accountId')}` ``. Each part has
 * `%` and `:` escaped, so two different lists of parts never make the same key, as long as a `:`
 * stands between every two of them. A blank part makes the whole key blank.
 */
export function segment(
  texts: TemplateStringsArray,
  ...parts: readonly (KeyResolver | KeyValue)[]
): BindableResolver {
  return new CompositeKey(texts, parts);
}

class CompositeKey implements BindableResolver {
  readonly [BINDABLE] = true;

  constructor(
    private readonly texts: readonly string[],
    private readonly parts: readonly (KeyResolver | KeyValue)[],
  ) {}

  get fromRequest(): boolean {
    return this.parts.some((part) => isBindable(part) && part.fromRequest);
  }

  get async(): boolean {
    return this.parts.some(isAsync);
  }

  bind(shape: MethodShape): BindableResolver {
    return new CompositeKey(
      this.texts,
      this.parts.map((part) => (isBindable(part) ? part.bind(shape) : part)),
    );
  }

  call(invocation: Invocation): KeyValue | Promise<KeyValue> {
    const values = this.parts.map((part) =>
      typeof part === 'object' && part !== null ? part.call(invocation) : part,
    );
    return values.some((value) => value instanceof Promise)
      ? Promise.all(values).then((settled) => this.#compose(settled))
      : this.#compose(values as KeyValue[]);
  }

  #compose(values: readonly KeyValue[]): string | undefined {
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

function isAsync(part: KeyResolver | KeyValue): boolean {
  if (isBindable(part)) return part.async;
  return typeof part === 'object' && part !== null && types.isAsyncFunction(part.call);
}
