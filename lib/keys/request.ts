import { isIPv4, isIPv6 } from 'node:net';
import { types } from 'node:util';
import type { ExecutionContext } from '@nestjs/common';
import { DefinitionError, show } from '../errors/definition.error.js';
import type { Invocation } from '../invocation.js';
import {
  BINDABLE,
  type BindableResolver,
  type HeaderShare,
  KeyProblem,
  type KeyValue,
} from './key-resolver.js';
import { unquoted } from './quoted.js';

interface RequestLike {
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly ip?: string;
  readonly socket?: { readonly remoteAddress?: string };
}

/**
 * A header of the current request, whatever its letter case; blank outside a request. A quoted value
 * (a structured-field string, RFC 9651) is the same as what it quotes.
 */
export function header(name: string): BindableResolver {
  if (typeof name !== 'string' || name === '') {
    throw new DefinitionError(`header(): expected the name of a header, got ${show(name)}`);
  }
  const lowerCase = name.toLowerCase();
  return new RequestKey(
    `header('${name}')`,
    (request: RequestLike) => {
      const value = request.headers?.[lowerCase];
      if (Array.isArray(value)) throw new KeyProblem(`header('${name}') was sent more than once`);
      return unquoted(value as string | undefined);
    },
    'all',
  );
}

/**
 * The address of the current client, as the HTTP server knows it (`request.ip`, so Express's and
 * Fastify's `trust proxy` settings apply); blank outside a request. An IPv4 address mapped into
 * IPv6 is the IPv4 address; IPv6 addresses count by /64, the block that one customer gets.
 */
export function clientIp(): BindableResolver {
  return new RequestKey('clientIp()', (request: RequestLike) =>
    normaliseIp(request.ip ?? request.socket?.remoteAddress),
  );
}

/** Whatever `read` makes of the current request; blank outside one. */
export function fromRequest<Req = RequestLike>(
  read: (request: Req) => KeyValue | Promise<KeyValue>,
): BindableResolver {
  if (typeof read !== 'function') {
    throw new DefinitionError(
      `fromRequest(): expected a function of the request, got ${show(read)}`,
    );
  }
  return new RequestKey('fromRequest(...)', read);
}

class RequestKey<Req> implements BindableResolver {
  readonly [BINDABLE] = true;
  readonly fromRequest = true;

  constructor(
    private readonly text: string,
    private readonly read: (request: Req) => KeyValue | Promise<KeyValue>,
    readonly headers: HeaderShare = 'none',
  ) {}

  get async(): boolean {
    return types.isAsyncFunction(this.read);
  }

  bind(): BindableResolver {
    return this;
  }

  call(invocation: Invocation): KeyValue | Promise<KeyValue> {
    const request = invocation.context && requestOf(invocation.context);
    return request === undefined ? undefined : this.read(request as Req);
  }

  toString(): string {
    return this.text;
  }
}

function requestOf(context: ExecutionContext): unknown {
  switch (context.getType<string>()) {
    case 'http':
      return context.getArgByIndex(0);
    case 'graphql':
      return context.getArgByIndex<{ req?: unknown } | undefined>(2)?.req;
    default:
      return undefined;
  }
}

/** @returns the address in one spelling; IPv6 as its /64 prefix */
export function normaliseIp(address: string | undefined): string | undefined {
  if (address === undefined) return undefined;
  const plain = address.split('%')[0] as string;
  if (isIPv4(plain)) return plain;
  if (!isIPv6(plain)) return address;
  const groups = expandIPv6(plain);
  const mapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff;
  if (mapped) {
    const [high = 0, low = 0] = groups.slice(6);
    return [high >> 8, high & 255, low >> 8, low & 255].join('.');
  }
  const prefix = groups.slice(0, 4).map((group) => group.toString(16));
  return `${prefix.join(':')}::/64`;
}

/** The eight 16-bit groups of a valid IPv6 address. */
function expandIPv6(address: string): number[] {
  const [head = '', tail] = address.split('::');
  const left = parseGroups(head);
  if (tail === undefined) return left;
  const right = parseGroups(tail);
  return [...left, ...Array<number>(8 - left.length - right.length).fill(0), ...right];
}

function parseGroups(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (!group.includes('.')) return [Number.parseInt(group, 16)];
    const [a = 0, b = 0, c = 0, d = 0] = group.split('.').map(Number);
    return [a * 256 + b, c * 256 + d];
  });
}
