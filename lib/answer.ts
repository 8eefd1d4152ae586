/** What a client was answered over HTTP, as far as it can be given again. */
export interface Answer {
  readonly status: number;
  /** By lower-case name; only those that belong to the answer itself. */
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: unknown;
  /** Whether a view is made of the body; else an object is sent as JSON. */
  readonly rendered: boolean;
  /** What the server asks about everything that it sends as JSON; nothing of an answer given again. */
  readonly replacer?: JsonReplacer | undefined;
}

/** The second argument of `JSON.stringify`. */
export type JsonReplacer = ((this: unknown, key: string, value: unknown) => unknown) | string[];

/** Who gets what a call answers: code of this process, a client of HTTP, or one of another transport. */
export type Caller = 'code' | 'http' | 'transport';

/** What a duplicate gets instead of a run of its own. */
export interface Replay {
  readonly value: unknown;
  /** Present where a client of HTTP was answered. */
  readonly answer?: Answer | undefined;
}
