import { createPlugin, fromJSON, type SerovalJSON, type SerovalNode, toJSON } from 'seroval';
import type { OutcomeCodec } from './options.js';

/** Why a value has no text. */
export class UnencodableError extends Error {}

/** The views of bytes that a text may name, `Buffer` apart: nothing else is ever made of a name. */
const VIEWS: ReadonlyMap<string, new (bytes: ArrayBuffer) => ArrayBufferView> = new Map(
  [
    Int8Array,
    Uint8Array,
    Uint8ClampedArray,
    Int16Array,
    Uint16Array,
    Int32Array,
    Uint32Array,
    Float32Array,
    Float64Array,
    BigInt64Array,
    BigUint64Array,
    DataView,
  ].map((view) => [view.name, view]),
);

/** By the prototype, which an instance of a derived class does not have. */
const VIEW_NAMES: ReadonlyMap<unknown, string> = new Map([
  [Buffer.prototype, 'Buffer'],
  ...[...VIEWS].map(([name, view]) => [view.prototype as unknown, name] as const),
]);

/**
 * The bytes of a view, and no others: the memory under a small Buffer is shared with its neighbours,
 * which belong to somebody else.
 */
const ViewPlugin = createPlugin<ArrayBufferView, { view: SerovalNode; base64: SerovalNode }>({
  tag: 'view',
  test: (value) => ArrayBuffer.isView(value),
  skipPlainObjects: true,
  parse: {
    sync: (value, context) => ({
      view: context.parse(VIEW_NAMES.get(Object.getPrototypeOf(value))),
      base64: context.parse(bytesOf(value).toString('base64')),
    }),
  },
  serialize: (node, context) =>
    `new ${context.serialize(node.view)}(${context.serialize(node.base64)})`,
  deserialize(node, context) {
    const bytes = Buffer.from(context.deserialize<string>(node.base64), 'base64');
    const View = VIEWS.get(context.deserialize<string>(node.view));
    return View ? new View(Uint8Array.from(bytes).buffer) : bytes;
  },
});

function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

const PLUGINS = [ViewPlugin];

/** What begins a text that is more than JSON, and no JSON begins with. */
const RICH = '~';

/**
 * JSON that keeps what JSON loses: `undefined`, Date, bigint, Buffer, Map, Set, typed arrays,
 * `NaN`, cycles. It knows no classes: an instance of one has no text, and no text makes one.
 */
export const richJson: OutcomeCodec = {
  encode(value) {
    // Most answers are JSON as they are, which is several times shorter and faster.
    if (isJson(value)) return JSON.stringify(value);
    assertPlain(value, new Set());
    return RICH + JSON.stringify(toJSON(value, { plugins: PLUGINS }));
  },
  decode(text) {
    if (!text.startsWith(RICH)) return JSON.parse(text) as unknown;
    return fromJSON(JSON.parse(text.slice(RICH.length)) as SerovalJSON, {
      plugins: PLUGINS,
      maxBase64Length: Number.MAX_SAFE_INTEGER,
    });
  },
};

/** Whether JSON loses nothing of a value, nor that two of its parts are one object. */
function isJson(value: unknown, seen?: Set<object>): boolean {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return true;
    case 'number':
      return Number.isFinite(value) && !Object.is(value, -0);
    case 'object':
      return value === null || isJsonObject(value, seen ?? new Set());
    default:
      return false;
  }
}

function isJsonObject(value: object, seen: Set<object>): boolean {
  if (seen.has(value)) return false;
  seen.add(value);
  if (Object.getOwnPropertySymbols(value).length > 0) return false;
  const values = Object.values(value);
  switch (Object.getPrototypeOf(value) as unknown) {
    case Array.prototype:
      if (!isWhole(value as unknown[])) return false;
      break;
    case Object.prototype:
      if (typeof (value as { toJSON?: unknown }).toJSON === 'function') return false;
      break;
    default:
      return false;
  }
  return values.every((each) => isJson(each, seen));
}

/** Whether an array has something at each position, and nothing else. Positions are listed first. */
function isWhole(array: readonly unknown[]): boolean {
  const names = Object.keys(array);
  const { length } = array;
  return names.length === length && (length === 0 || names[length - 1] === String(length - 1));
}

/** @throws UnencodableError where a text would say less than the value does */
function assertPlain(value: unknown, seen: Set<object>): void {
  if (typeof value === 'function') throw new UnencodableError('a function');
  if (typeof value === 'symbol') throw new UnencodableError('a symbol');
  if (typeof value !== 'object' || value === null || seen.has(value)) return;
  seen.add(value);
  if (Object.getOwnPropertySymbols(value).length > 0) throw new UnencodableError('a symbol');
  switch (Object.getPrototypeOf(value) as unknown) {
    case Date.prototype:
    case ArrayBuffer.prototype:
      return assertNothingElse(Object.keys(value));
    case Map.prototype:
      assertNothingElse(Object.keys(value));
      for (const [key, each] of value as Map<unknown, unknown>) {
        assertPlain(key, seen);
        assertPlain(each, seen);
      }
      return;
    case Set.prototype:
      assertNothingElse(Object.keys(value));
      for (const each of value as Set<unknown>) assertPlain(each, seen);
      return;
    case Array.prototype:
      // Positions come first, whatever the order in which properties were added.
      assertNothingElse(Object.keys(value).slice(-1).filter(isNoPosition));
      for (const each of value as unknown[]) assertPlain(each, seen);
      return;
    case Object.prototype:
    case null:
      // Something that iterates by itself would be used up by looking at it.
      if (Symbol.iterator in value) throw new UnencodableError('an iterator');
      for (const each of Object.values(value)) assertPlain(each, seen);
      return;
    default:
      // A view's further properties are not looked for: to list its positions costs more than to keep it.
      if (!VIEW_NAMES.has(Object.getPrototypeOf(value))) {
        throw new UnencodableError(`an instance of ${value.constructor?.name || 'a class'}`);
      }
  }
}

function isNoPosition(name: string): boolean {
  return !/^\d+$/.test(name);
}

function assertNothingElse([name]: readonly string[]): void {
  if (name !== undefined) throw new UnencodableError(`a further property "${name}"`);
}
