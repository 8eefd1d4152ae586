import type { ModulesContainer } from '@nestjs/core';
import { CMDX_RUNTIME, isBare } from '../envelope/binding.js';
import type { Runtime } from '../envelope/runtime.js';
import { DefinitionError } from '../errors/definition.error.js';
import { type AnyClass, taskName } from '../metadata/method-name.js';
import { isDecorated, subscriptionsOf } from '../metadata/policy-records.js';
import type { TelemetryEvent } from '../telemetry/events.js';
import type { Telemetry } from '../telemetry/telemetry.js';

type NestModule = NonNullable<ReturnType<ModulesContainer['get']>>;
type InstanceWrapper = NonNullable<ReturnType<NestModule['providers']['get']>>;

/** Walks the classes and instances of an application. */
export class Explorer {
  constructor(private readonly modules: ModulesContainer) {}

  /** The decorated classes that Nest instantiates, before the first route is registered. */
  decoratedClasses(): readonly AnyClass[] {
    const classes = this.#wrappers().flatMap((wrapper) => {
      const target = classOf(wrapper);
      return target && isDecorated(target) ? [target] : [];
    });
    return [...new Set(classes)];
  }

  /** How many modules of the application carry a mark, whichever copy of the package their class is from. */
  countModules(mark: symbol): number {
    return [...this.modules.values()].filter(({ metatype }) => mark in metatype).length;
  }

  /** Gives the runtime to instances that a factory or a value made, which Nest does not inject into. */
  attach(runtime: Runtime): void {
    for (const instance of this.#instances()) {
      const target = instance.constructor as AnyClass;
      if (typeof target !== 'function' || !isDecorated(target) || isBare(instance)) continue;
      Reflect.set(instance, CMDX_RUNTIME, runtime);
    }
  }

  /** Subscribes the `@OnTelemetry` methods of the providers. @throws DefinitionError for one that is no singleton */
  subscribe(telemetry: Telemetry): void {
    for (const wrapper of this.#wrappers()) {
      const instance: unknown = wrapper.instance;
      const target =
        classOf(wrapper) ?? (isObject(instance) ? (instance.constructor as AnyClass) : undefined);
      if (typeof target !== 'function') continue;
      for (const { event, method } of subscriptionsOf(target)) {
        if (!wrapper.isDependencyTreeStatic() || wrapper.isTransient || !isObject(instance)) {
          throw new DefinitionError(
            `${taskName(target, method)}: @OnTelemetry('${event}'): expected a singleton provider, got one that is request-scoped or transient`,
          );
        }
        const listener = instance as Record<PropertyKey, (event: TelemetryEvent) => unknown>;
        telemetry.subscribe(event, (told) => listener[method]?.(told));
      }
    }
  }

  *#instances(): Iterable<object> {
    for (const wrapper of this.#wrappers()) {
      const madeByNest = classOf(wrapper) !== undefined;
      const instance: unknown = wrapper.instance;
      if (!madeByNest && isObject(instance)) yield instance;
    }
  }

  #wrappers(): readonly InstanceWrapper[] {
    const wrappers = [...this.modules.values()].flatMap((module) => [
      ...module.providers.values(),
      ...module.controllers.values(),
      ...module.injectables.values(),
    ]);
    return wrappers.filter((wrapper) => !wrapper.isAlias);
  }
}

/** The class that Nest instantiates for a provider; a factory's function is none. */
function classOf(wrapper: InstanceWrapper): AnyClass | undefined {
  const { metatype } = wrapper;
  if (typeof metatype !== 'function' || wrapper.inject || wrapper.isNotMetatype) return undefined;
  return metatype.prototype ? (metatype as unknown as AnyClass) : undefined;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
