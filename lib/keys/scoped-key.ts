import { askAll } from '../awaitable.js';
import type { CompiledKey } from './compiled-key.js';
import { escapePart, toText } from './store-key.js';

/**
 * A key that is one of its owner's: `scope:key`, both escaped, or `scope:` where the key is the task
 * itself. Blank when either is. Shared keys are escaped too, and so have no `:`: no client can choose
 * one that reads like the key of somebody else.
 *
 * @param key `undefined`: the task itself
 */
export function scopedKey(
  key: CompiledKey | undefined,
  scope: CompiledKey | 'shared',
): CompiledKey | undefined {
  if (scope === 'shared') {
    return key && { ...key, read: (invocation) => askAll([() => key.read(invocation)], join) };
  }
  const parts = key ? [scope, key] : [scope];
  const compose = key ? join : (values: readonly unknown[]) => withColon(join(values));
  return {
    read: (invocation) =>
      askAll(
        parts.map((part) => () => part.read(invocation)),
        compose,
      ),
    async: parts.some((part) => part.async),
    fromRequest: parts.some((part) => part.fromRequest),
    headers: key?.headers ?? 'none',
    text: parts.map((part) => part.text).join(' : '),
  };
}

function withColon(text: string | undefined): string | undefined {
  return text === undefined ? undefined : `${text}:`;
}

function join(values: readonly unknown[]): string | undefined {
  const texts = values.map(toText);
  return texts.includes(undefined)
    ? undefined
    : texts.map((text) => escapePart(text as string)).join(':');
}
