import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import type { StandardSchemaV1 } from '@standard-schema/spec';
import { plainToInstance, Type } from 'class-transformer';
import {
  IsEmail,
  IsInt,
  IsNotEmpty,
  Min,
  validate,
  ValidateNested,
  type ValidationError,
} from 'class-validator';
import { input, InputSchema, LockWith, OutputSchema } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';

closeApplicationsAfterEach();

/** Checks with the decorators of a class: makes an instance, and drops properties without any. */
function classSchema<T extends object>(target: new () => T): StandardSchemaV1<unknown, T> {
  return {
    '~standard': {
      version: 1,
      vendor: 'class-validator',
      async validate(value) {
        if (typeof value !== 'object' || value === null || Array.isArray(value)) {
          return { issues: [{ message: 'must be an object' }] };
        }
        const instance = plainToInstance(target, value);
        const errors = await validate(instance, { whitelist: true, forbidUnknownValues: true });
        return errors.length === 0
          ? { value: instance }
          : { issues: errors.flatMap((error) => issuesOf(error)) };
      },
    },
  };
}

function issuesOf(
  { property, constraints = {}, children = [] }: ValidationError,
  parents: readonly string[] = [],
): StandardSchemaV1.Issue[] {
  const path = [...parents, property];
  const own = Object.values(constraints).map((message) => ({ message, path }));
  return [...own, ...children.flatMap((child) => issuesOf(child, path))];
}

class Line {
  @IsInt()
  @Min(1)
  quantity!: number;
}

class Order {
  @IsEmail()
  email!: string;

  @Type(() => Line)
  @ValidateNested({ each: true })
  lines!: Line[];

  get total(): number {
    return this.lines.reduce((sum, { quantity }) => sum + quantity, 0);
  }
}

class Receipt {
  @IsNotEmpty()
  id!: string;
}

describe('can a class of class-validator be the schema?', () => {
  @Injectable()
  class Orders {
    @InputSchema(classSchema(Order))
    @LockWith(input('email'))
    @OutputSchema(classSchema(Receipt))
    async place(order: Order): Promise<Receipt> {
      return { id: order.total > 9 ? '' : `${order.constructor.name} of ${order.total}` };
    }
  }

  const place = async (order: unknown) => {
    const { get, cmdx, telemetry } = await boot({ providers: [Orders] });
    return { result: await cmdx.execute(() => get(Orders).place(order as Order)), telemetry };
  };

  it('yes: the body gets an instance, with what the class declares', async () => {
    const order = { email: 'a@b.org', lines: [{ quantity: 2 }, { quantity: 3 }], admin: true };
    const { result, telemetry } = await place(order);
    expect(result.value).toEqual({ id: 'Order of 5' });
    expect(result.value).toBeInstanceOf(Receipt);
    expect(telemetry.of('lock_acquired')[0]?.payload.lockKey).toBe(
      'cmdx:lock:Orders.place:a@b.org',
    );
  });

  it('issues say where, however deep', async () => {
    const { result } = await place({ email: 'nobody', lines: [{ quantity: 1 }, { quantity: 0 }] });
    expect(result.metadata).toMatchObject({
      code: 'input_invalid',
      issues: [
        { path: 'email', message: 'email must be an email' },
        { path: 'lines.1.quantity', message: 'quantity must not be less than 1' },
      ],
    });
  });

  it.each([[undefined], [null], ['text'], [[]]])('%p is no object', async (order) => {
    const { result } = await place(order);
    expect(result.metadata).toMatchObject({
      code: 'input_invalid',
      issues: [{ path: '', message: 'must be an object' }],
    });
  });

  it('so is an output', async () => {
    const { result } = await place({ email: 'a@b.org', lines: [{ quantity: 10 }] });
    expect(result.metadata).toMatchObject({
      code: 'output_invalid',
      issues: [{ path: 'id' }],
    });
  });
});
