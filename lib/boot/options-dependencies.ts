import { DefinitionError } from '../errors/definition.error.js';
import type { AnyClass } from '../metadata/method-name.js';
import { injectedTokens } from '../metadata/nest-metadata.js';
import { isDecorated } from '../metadata/policy-records.js';

interface AsyncOptions {
  readonly inject?: readonly unknown[];
  readonly useClass?: unknown;
  readonly useExisting?: unknown;
}

/**
 * The runtime is made of the module's options, and every guarded class needs the runtime: options
 * that need a guarded class would wait for themselves.
 *
 * @throws DefinitionError that names the way from the options to the guarded class
 */
export function assertOptionsNeedNoGuardedClass(options: AsyncOptions): void {
  const roots = [...(options.inject ?? []).map(tokenOf), options.useClass, options.useExisting];
  for (const root of roots) {
    const path = findGuarded(root, new Set());
    if (!path) continue;
    throw new DefinitionError(
      `CmdxModule.forRootAsync(): expected options (store, telemetry) that depend on no guarded class, got ${path.join(' -> ')}, whose guarded methods need the module themselves`,
    );
  }
}

function tokenOf(injected: unknown): unknown {
  return typeof injected === 'object' && injected !== null && 'token' in injected
    ? injected.token
    : injected;
}

function findGuarded(value: unknown, seen: Set<unknown>): readonly string[] | undefined {
  if (typeof value !== 'function' || value.prototype === undefined || seen.has(value))
    return undefined;
  seen.add(value);
  const target = value as unknown as AnyClass;
  if (isDecorated(target)) return [target.name];
  for (const dependency of injectedTokens(target)) {
    const path = findGuarded(dependency, seen);
    if (path) return [target.name, ...path];
  }
  return undefined;
}
