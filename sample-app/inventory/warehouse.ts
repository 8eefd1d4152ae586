import { setTimeout as sleep } from 'node:timers/promises';
import { BadGatewayException, Injectable, Logger } from '@nestjs/common';

export const CONDITIONS = { well: 'well', flaky: 'flaky', down: 'down' } as const;
export type Condition = keyof typeof CONDITIONS;

/** The warehouse did not answer. */
export class WarehouseError extends BadGatewayException {
  constructor() {
    super('The warehouse does not answer.');
  }
}

const STOCK = new Map([
  ['A-1', 12],
  ['B-2', 0],
]);

/** Stands in for somebody else's API, as well or as sick as you tell it to be. */
@Injectable()
export class Warehouse {
  readonly #logger = new Logger(Warehouse.name);
  #requests = 0;
  #condition: Condition = CONDITIONS.flaky;

  become(condition: Condition): void {
    this.#condition = condition;
    this.#requests = 0;
  }

  /**
   * @returns what came over the wire, which nobody has checked; nothing for an unknown item
   * @throws WarehouseError for each request when it is down, for every other one when it is flaky
   */
  async request(sku: string): Promise<unknown> {
    this.#requests += 1;
    this.#logger.log(`Request ${this.#requests} since it is ${this.#condition}`);
    await sleep(20);
    const fails = { well: false, flaky: this.#requests % 2 === 1, down: true };
    if (fails[this.#condition]) throw new WarehouseError();
    const quantity = STOCK.get(sku);
    return quantity === undefined ? undefined : { sku, quantity, aisle: 'not for clients' };
  }
}
