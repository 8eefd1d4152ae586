import { isDeepStrictEqual } from 'node:util';
import type { Answer, Caller, JsonReplacer, Replay } from '../answer.js';
import { isThenable } from '../awaitable.js';
import { exceedsBytes } from '../bytes.js';
import { show } from '../errors/definition.error.js';
import type { OutcomeCodec } from './options.js';
import type { Ending } from './policy.js';
import { richJson, UnencodableError } from './rich-json.js';

/** How an outcome is kept. */
export interface OutcomeSettings {
  readonly codec: OutcomeCodec | undefined;
  readonly returns: (abstract new (...args: never[]) => object) | undefined;
  readonly maxBytes: number;
}

/** What the first letter of a kept outcome says about the rest. */
const VALUE = 'v';
const INSTANCE = 'i';
const INSTANCES = 'l';
const ANSWER = 'a';
/** Stands before one of the others: a client of a transport without statuses was answered so. */
const HANDLED = 'h';

/** Of an answer: whether its body is kept as the JSON that was sent, or by the codec. */
type BodyForm = 'json' | 'codec';

/** Keeps what a method returned, or a client was answered, as a text. */
export class OutcomeText {
  readonly #codec: OutcomeCodec;

  constructor(private readonly settings: OutcomeSettings) {
    this.#codec = settings.codec ?? richJson;
  }

  /** @throws UnencodableError, or what the codec throws, when it cannot be kept */
  encode(ending: Ending & { readonly kind: 'returned' | 'answered' }): string {
    assertNoStream(ending.kind === 'answered' ? ending.answer.body : ending.value);
    const text =
      ending.kind === 'answered'
        ? ANSWER + this.#encodeAnswer(ending.answer)
        : (ending.handled ? HANDLED : '') + this.#encodeValue(ending.value);
    const { maxBytes } = this.settings;
    if (!exceedsBytes(text, maxBytes)) return text;
    throw new UnencodableError(`more than maxBytes, ${maxBytes}`);
  }

  /**
   * @param caller who is to be answered. What was kept of a direct call was never cleaned by the
   *   interceptors of a handler, so no client gets it.
   * @returns `undefined` when this caller cannot be given it
   * @throws what the codec throws
   */
  decode(text: string, caller: Caller): Replay | undefined {
    if (text[0] === ANSWER) {
      const answer = this.#decodeAnswer(text.slice(1));
      return { value: answer.body, answer };
    }
    const handled = text[0] === HANDLED;
    // What another transport was answered has no status.
    if (caller === 'http' || (caller === 'transport' && !handled)) return undefined;
    return { value: this.#decodeValue(handled ? text.slice(1) : text) };
  }

  #encodeValue(value: unknown): string {
    const prototype = this.settings.returns?.prototype as object | undefined;
    if (prototype && isInstance(value, prototype)) {
      return INSTANCE + this.#write({ ...value });
    }
    if (prototype && Array.isArray(value) && value.length > 0) {
      if (value.every((each) => isInstance(each, prototype))) {
        return INSTANCES + this.#write(value.map((each: object) => ({ ...each })));
      }
    }
    return VALUE + this.#write(value);
  }

  /** `JSON.stringify` alone is a codec that answers no text for `undefined`. */
  #write(value: unknown): string {
    const text: unknown = this.#codec.encode(value);
    if (typeof text === 'string') return text;
    // A promise that nobody waits for would end the process when it rejects.
    if (isThenable(text)) text.then(undefined, () => undefined);
    throw new UnencodableError(`the codec answered no text, but ${show(text)}`);
  }

  #decodeValue(text: string): unknown {
    const form = text[0];
    const value = this.#codec.decode(text.slice(1));
    if (form === VALUE) return value;
    const prototype = this.settings.returns?.prototype as object | undefined;
    if (!prototype) throw new UnencodableError('an instance, and the option "returns" is gone');
    return form === INSTANCE
      ? revive(prototype, value as object)
      : (value as object[]).map((each) => revive(prototype, each));
  }

  #encodeAnswer({ status, headers, body, rendered, replacer }: Answer): string {
    const json = this.settings.codec || rendered ? undefined : sentAsJson(body, replacer);
    const form: BodyForm = json === undefined ? 'codec' : 'json';
    return `${JSON.stringify([status, headers, rendered, form])}\n${json ?? this.#write(body)}`;
  }

  #decodeAnswer(text: string): Answer {
    const end = text.indexOf('\n');
    const [status, headers, rendered, form] = JSON.parse(text.slice(0, end)) as [
      Answer['status'],
      Answer['headers'],
      Answer['rendered'],
      BodyForm,
    ];
    const body = text.slice(end + 1);
    return {
      status,
      headers,
      rendered,
      body: form === 'json' ? (JSON.parse(body) as unknown) : this.#codec.decode(body),
    };
  }
}

/**
 * Whether a value is an instance of that class itself, and its properties are all there is to it:
 * what a Map, a Date or an error holds is none of them.
 */
function isInstance(value: unknown, prototype: object): value is object {
  return (
    typeof value === 'object' &&
    value !== null &&
    Object.getPrototypeOf(value) === prototype &&
    isDeepStrictEqual(revive(prototype, { ...value }), value)
  );
}

/** Defined, not assigned: an accessor of the class has no say in what the instance once had. */
function revive(prototype: object, properties: object): object {
  return Object.create(prototype, Object.getOwnPropertyDescriptors(properties)) as object;
}

/**
 * Objects are sent as JSON, whatever class they are of: what is kept is that JSON, which is sent
 * again byte by byte. Not so what some adapter sends as it is.
 */
function sentAsJson(body: unknown, replacer: JsonReplacer | undefined): string | undefined {
  if (typeof body !== 'object' || body === null || ArrayBuffer.isView(body)) return undefined;
  // Fastify answers it as if it had been thrown.
  if (body instanceof Error) throw new UnencodableError('an error');
  const json: string | undefined = JSON.stringify(body, replacer as never);
  return json?.startsWith('{') || json?.startsWith('[') ? json : undefined;
}

/** Nest also sends the stream that an interceptor has wrapped: `{ data: stream }`. */
function assertNoStream(value: unknown): void {
  if (typeof value !== 'object' || value === null) return;
  const plain = Object.getPrototypeOf(value) === Object.prototype;
  if (isStream(value) || (plain && Object.values(value).some(isStream))) {
    throw new UnencodableError('a stream');
  }
}

/** What a stream of Node or of the web, a generator, Nest's `StreamableFile` or a `Response` can do. */
const READ_ONCE = ['pipe', 'getStream', 'getReader', 'arrayBuffer', Symbol.asyncIterator] as const;

/** Whether a value is empty once it has been read. */
function isStream(value: unknown): boolean {
  return (
    typeof value === 'object' &&
    value !== null &&
    READ_ONCE.some((name) => typeof (value as Record<PropertyKey, unknown>)[name] === 'function')
  );
}
