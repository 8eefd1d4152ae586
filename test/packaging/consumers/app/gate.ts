/** Holds the first body until it is opened, so that "at the same time" needs no sleeping. */
export class Gate {
  readonly entered: Promise<void>;
  open!: () => void;
  private enter?: () => void;
  private readonly opened: Promise<void>;

  constructor() {
    this.entered = new Promise((resolve) => (this.enter = resolve));
    this.opened = new Promise((resolve) => (this.open = resolve));
  }

  async pass(): Promise<void> {
    if (!this.enter) return;
    this.enter();
    this.enter = undefined;
    await this.opened;
  }
}

/** What three starts answer, two of them while the body of the first is held. */
export async function threeStarts<T>(gate: Gate, start: () => Promise<T>): Promise<T[]> {
  const first = start();
  await Promise.race([gate.entered, first]);
  const second = await start();
  const third = await start();
  gate.open();
  return [await first, second, third];
}
