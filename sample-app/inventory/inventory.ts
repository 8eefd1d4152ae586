import { Injectable, NotFoundException } from '@nestjs/common';
import { CircuitBreaker, InputSchema, OutputSchema, RetryOn } from 'nestjs-cmdx';
import * as z from 'zod';
import { Warehouse, WarehouseError } from './warehouse.js';

const Sku = z
  .string()
  .trim()
  .toUpperCase()
  .regex(/^[A-Z]-\d+$/, 'must be a letter, a dash and a number');

/** What clients see of an item; whatever else the warehouse tells is left out. */
const Stock = z.object({ sku: Sku, quantity: z.int().min(0) });
export type Stock = z.output<typeof Stock>;

@Injectable()
export class Inventory {
  constructor(private readonly warehouse: Warehouse) {}

  /**
   * A request that fails is repeated at most twice. When half of the calls fail all the same, the
   * warehouse is left alone for a while, by every replica.
   */
  @InputSchema(Sku)
  @CircuitBreaker('warehouse', { minimumCalls: 5, window: '30s', openFor: '5s' })
  @RetryOn(WarehouseError, { limit: 2, delay: '100ms', jitter: 'exponential' })
  @OutputSchema(Stock)
  async stockOf(sku: string): Promise<Stock> {
    const item = await this.warehouse.request(sku);
    if (!item) throw new NotFoundException(`There is no ${sku}.`);
    return item as Stock;
  }
}
