import { DefinitionError } from '../errors/definition.error.js';
import { type AnyClass, nameOf } from '../metadata/method-name.js';
import { injectedTokens, moduleMetadata } from '../metadata/nest-metadata.js';
import { isDecorated } from '../metadata/policy-records.js';

interface AsyncOptions {
  readonly imports?: readonly unknown[];
  readonly inject?: readonly unknown[];
  readonly useClass?: unknown;
  readonly useExisting?: unknown;
}

/** A provider that is more than a class. */
interface CustomProvider extends AsyncOptions {
  readonly provide: unknown;
}

/**
 * The runtime is made of the module's options, and every guarded class needs the runtime: options
 * that need a guarded class would wait for themselves.
 *
 * @throws DefinitionError that names the way from the options to the guarded class
 */
export function assertOptionsNeedNoGuardedClass(options: AsyncOptions): void {
  const providers = new Map<unknown, CustomProvider>();
  collectProviders(options.imports ?? [], providers, new Set());
  const seen = new Set<unknown>();
  for (const root of [...dependenciesOf(options), options.useClass]) {
    const path = findGuarded(root, providers, seen);
    if (!path) continue;
    throw new DefinitionError(
      `CmdxModule.forRootAsync(): expected options (store, telemetry) that depend on no guarded class, got ${path.join(' -> ')}, whose guarded methods need the module themselves`,
    );
  }
}

/** What a factory is called with, or an alias stands for. */
function dependenciesOf({ inject = [], useExisting }: AsyncOptions): readonly unknown[] {
  return [...inject.map(tokenOf), useExisting];
}

function tokenOf(injected: unknown): unknown {
  return typeof injected === 'object' && injected !== null && 'token' in injected
    ? injected.token
    : injected;
}

/** The custom providers of modules and of what they import, as far as they are known before the boot. */
function collectProviders(
  modules: readonly unknown[],
  providers: Map<unknown, CustomProvider>,
  seen: Set<unknown>,
): void {
  for (const module of modules) {
    if (seen.has(module)) continue;
    seen.add(module);
    const { imports, providers: written } = moduleMetadata(module);
    for (const provider of written) {
      if (isCustomProvider(provider)) providers.set(provider.provide, provider);
    }
    collectProviders(imports, providers, seen);
  }
}

function isCustomProvider(provider: unknown): provider is CustomProvider {
  return typeof provider === 'object' && provider !== null && 'provide' in provider;
}

function findGuarded(
  token: unknown,
  providers: ReadonlyMap<unknown, CustomProvider>,
  seen: Set<unknown>,
): readonly string[] | undefined {
  if (seen.has(token)) return undefined;
  seen.add(token);
  const custom = providers.get(token);
  const made = custom ? custom.useClass : token;
  if (isClass(made) && isDecorated(made)) return [made.name];
  const dependencies = isClass(made) ? injectedTokens(made) : dependenciesOf(custom ?? {});
  for (const dependency of dependencies) {
    const path = findGuarded(dependency, providers, seen);
    if (path) return [textOf(token), ...path];
  }
  return undefined;
}

function isClass(value: unknown): value is AnyClass {
  return typeof value === 'function' && value.prototype !== undefined;
}

function textOf(token: unknown): string {
  return isClass(token) ? token.name : nameOf(token as PropertyKey);
}
