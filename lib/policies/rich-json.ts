import { createPlugin, fromJSON, type SerovalJSON, type SerovalNode, toJSON } from 'seroval';
import type { OutcomeCodec } from './options.js';

/** Why a value has no text. */
export class UnencodableError extends Error {}

/** Node's Buffer, which the codec would otherwise take for a class that it does not know. */
const BufferPlugin = createPlugin<Buffer, { base64: SerovalNode }>({
  tag: 'Buffer',
  test: (value) => Buffer.isBuffer(value),
  skipPlainObjects: true,
  parse: { sync: (value, context) => ({ base64: context.parse(value.toString('base64')) }) },
  serialize: (node, context) => `Buffer.from(${context.serialize(node.base64)},'base64')`,
  deserialize: (node, context) => Buffer.from(context.deserialize<string>(node.base64), 'base64'),
});

const PLUGINS = [BufferPlugin];

/**
 * JSON that keeps what JSON loses: `undefined`, Date, bigint, Buffer, Map, Set, typed arrays,
 * `NaN`, cycles. It knows no classes: an instance of one has no text, and no text makes one.
 */
export const richJson: OutcomeCodec = {
  encode(value) {
    assertPlain(value, new Set());
    return JSON.stringify(toJSON(value, { plugins: PLUGINS }));
  },
  decode(text) {
    return fromJSON(JSON.parse(text) as SerovalJSON, {
      plugins: PLUGINS,
      maxBase64Length: Number.MAX_SAFE_INTEGER,
    });
  },
};

/** @throws UnencodableError where a text would say less than the value does */
function assertPlain(value: unknown, seen: Set<object>): void {
  if (typeof value === 'function') throw new UnencodableError('a function');
  if (typeof value === 'symbol') throw new UnencodableError('a symbol');
  if (typeof value !== 'object' || value === null || seen.has(value)) return;
  seen.add(value);
  switch (Object.getPrototypeOf(value) as unknown) {
    case Date.prototype:
    case Buffer.prototype:
    case ArrayBuffer.prototype:
      return;
    case Map.prototype:
      for (const [key, each] of value as Map<unknown, unknown>) {
        assertPlain(key, seen);
        assertPlain(each, seen);
      }
      return;
    case Set.prototype:
    case Array.prototype:
      for (const each of value as Iterable<unknown>) assertPlain(each, seen);
      return;
    case Object.prototype:
    case null:
      assertPlainProperties(value, seen);
      return;
    default:
      if (!ArrayBuffer.isView(value)) {
        throw new UnencodableError(`an instance of ${value.constructor?.name || 'a class'}`);
      }
  }
}

function assertPlainProperties(value: object, seen: Set<object>): void {
  // Something that iterates by itself would be used up by looking at it.
  if (Symbol.iterator in value) throw new UnencodableError('an iterator');
  if (Object.getOwnPropertySymbols(value).length > 0) throw new UnencodableError('a symbol');
  for (const each of Object.values(value)) assertPlain(each, seen);
}
