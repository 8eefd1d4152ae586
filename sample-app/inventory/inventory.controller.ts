import { Controller, Get, Param } from '@nestjs/common';
import { type CircuitBreakerReport, CircuitBreakers, StoreKey } from 'nestjs-cmdx';
import { Inventory, type Stock } from './inventory.js';

@Controller()
export class InventoryController {
  constructor(
    private readonly inventory: Inventory,
    private readonly breakers: CircuitBreakers,
  ) {}

  @Get('inventory/:sku')
  stockOf(@Param('sku') sku: string): Promise<Stock> {
    return this.inventory.stockOf(sku);
  }

  /** For operators. A breaker that has counted nothing is closed. */
  @Get('breakers/:name')
  async stateOf(@Param('name') name: string): Promise<Partial<CircuitBreakerReport>> {
    const report = await this.breakers.inspect(StoreKey.compose('cmdx:cb', name));
    return report ?? { state: 'closed', calls: 0, failures: 0 };
  }
}
