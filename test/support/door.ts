/** Keeps bodies inside until the test lets them out, and counts them. */
export class Door {
  /** How many have entered, ever. */
  entered = 0;
  /** How many are inside now. */
  inside = 0;
  /** The most that were ever inside at once. */
  most = 0;
  readonly #waiting: (() => void)[] = [];
  #open = false;

  /** Called by a body: resolves once the door has been opened. */
  async pass(): Promise<void> {
    this.entered += 1;
    this.inside += 1;
    this.most = Math.max(this.most, this.inside);
    if (!this.#open) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.inside -= 1;
  }

  /** Lets everybody out, and leaves the door open. */
  open(): void {
    this.#open = true;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
