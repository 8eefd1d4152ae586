import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable, Logger } from '@nestjs/common';

/** Stands in for the API that moves the money, which takes its time. */
@Injectable()
export class CardProcessor {
  readonly #logger = new Logger(CardProcessor.name);

  /** @returns the number of the charge, a new one each time */
  async charge(amount: number): Promise<string> {
    await sleep(1_000);
    this.#logger.log(`Charged ${amount}`);
    return `pay_${randomUUID().slice(0, 8)}`;
  }
}
