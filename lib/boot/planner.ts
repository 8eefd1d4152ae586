import { ensureWrapped } from '../decorators/method-wrapper.js';
import type { Planner } from '../envelope/runtime.js';
import { DefinitionError } from '../errors/definition.error.js';
import { attempt } from '../errors/reading.js';
import { declarationOf, guardedMethods, idleClassPolicies } from '../metadata/declaration.js';
import { type AnyClass, taskName } from '../metadata/method-name.js';
import { type CompiledPlan, compilePlan } from '../plan/compiler.js';
import { PlanConsistency } from '../plan/consistency.js';
import type { PlanContext } from '../plan/context.js';
import type { Warning } from '../plan/warnings.js';
import { DECORATOR_NAMES } from '../policies/option-rules.js';

/** Compiles and checks the plans of one application, class by class. */
export class ApplicationPlanner implements Planner {
  readonly #plans = new Map<AnyClass, Map<PropertyKey, CompiledPlan>>();
  readonly #consistency = new PlanConsistency();
  readonly #told = new Set<string>();
  readonly #toldAbout = new WeakSet<object>();

  /** @param warn told once per message */
  constructor(
    private readonly context: PlanContext,
    private readonly warn: (message: string) => void,
  ) {}

  /**
   * Takes a managed class in: every guarded method meets a wrapper of ours first, its plan is
   * compiled, and the plans agree with each other.
   *
   * @throws DefinitionError for anything that could not work when a method is called
   */
  adopt(target: AnyClass): void {
    if (this.#plans.has(target)) return;
    assertNamed(target);
    assertClassPoliciesReach(target);
    const plans = new Map<PropertyKey, CompiledPlan>();
    for (const method of guardedMethods(target)) {
      ensureWrapped(target, method);
      const plan = compilePlan(declarationOf(target, method, this.warnOnce), this.context);
      this.#consistency.add(target, plan);
      plan.warnings.forEach(this.#warn);
      plans.set(method, plan);
    }
    this.#plans.set(target, plans);
  }

  plan(target: AnyClass, method: PropertyKey): CompiledPlan {
    this.adopt(target);
    const plan = this.#plans.get(target)?.get(method);
    if (!plan) throw new DefinitionError(`${taskName(target, method)} is not guarded`);
    return plan;
  }

  readonly #warn = ({ about, messages }: Warning): void => {
    if (this.#toldAbout.has(about)) return;
    this.#toldAbout.add(about);
    messages.forEach(this.#say);
  };

  readonly warnOnce = (message: string): void => {
    if (this.#told.has(message)) return;
    this.#told.add(message);
    this.#say(message);
  };

  /** A logger that throws must not decide over a call: leases are still to be given back then. */
  readonly #say = (message: string): void => {
    attempt(() => this.warn(message));
  };
}

function assertNamed(target: AnyClass): void {
  if (target.name !== '') return;
  throw new DefinitionError(
    'A guarded class has no name; expected one, because store keys and telemetry are made of it',
  );
}

function assertClassPoliciesReach(target: AnyClass): void {
  const [idle] = idleClassPolicies(target);
  if (!idle) return;
  throw new DefinitionError(
    `${target.name}: ${DECORATOR_NAMES[idle]} on the class reaches none of its methods: it has no Nest handler, and no method carries ${DECORATOR_NAMES[idle]}() itself`,
  );
}
