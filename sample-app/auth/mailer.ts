import { Injectable, Logger } from '@nestjs/common';

/** Stands in for a mail service. */
@Injectable()
export class Mailer {
  readonly #logger = new Logger(Mailer.name);

  async sendResetLink(email: string): Promise<void> {
    this.#logger.log(`A reset link goes to an address at ${email.split('@')[1]}`);
  }
}
