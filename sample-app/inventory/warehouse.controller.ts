import { Controller, HttpCode, HttpStatus, Param, ParseEnumPipe, Post } from '@nestjs/common';
import { type Condition, CONDITIONS, Warehouse } from './warehouse.js';

/** So that you can make the warehouse sick. The real one is run by somebody else. */
@Controller('warehouse')
export class WarehouseController {
  constructor(private readonly warehouse: Warehouse) {}

  @Post(':condition')
  @HttpCode(HttpStatus.OK)
  become(@Param('condition', new ParseEnumPipe(CONDITIONS)) condition: Condition): object {
    this.warehouse.become(condition);
    return { warehouse: condition };
  }
}
