import { Module } from '@nestjs/common';
import { InventoryController } from './inventory.controller.js';
import { Inventory } from './inventory.js';
import { WarehouseController } from './warehouse.controller.js';
import { Warehouse } from './warehouse.js';

@Module({
  controllers: [InventoryController, WarehouseController],
  providers: [Inventory, Warehouse],
})
export class InventoryModule {}
