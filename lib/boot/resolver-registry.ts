import { Injectable } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { DefinitionError } from '../errors/definition.error.js';
import type { ResolverLookup } from '../keys/compiled-key.js';
import type { KeyResolver, KeyResolverClass } from '../keys/key-resolver.js';

/** The injectable key resolvers of one application. */
@Injectable()
export class ResolverRegistry implements ResolverLookup {
  readonly #expected = new Map<KeyResolverClass, string>();

  constructor(private readonly moduleRef: ModuleRef) {}

  expect(resolver: KeyResolverClass, task: string): void {
    this.#expected.set(resolver, task);
  }

  /** @throws DefinitionError when no module provides it as a singleton */
  get(resolver: KeyResolverClass): KeyResolver {
    try {
      return this.moduleRef.get(resolver as never, { strict: false });
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new DefinitionError(
        `${this.#expected.get(resolver) ?? 'A guarded method'}: expected the key resolver ${resolver.name} to be a singleton provider of some module (${reason})`,
      );
    }
  }

  /** Looks every expected resolver up, so that a missing one stops the boot. */
  verify(): void {
    for (const resolver of this.#expected.keys()) this.get(resolver);
  }
}
