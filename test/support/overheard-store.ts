import { type EnterStep, type LeaveStep, MemoryStore } from 'nestjs-cmdx';

/** The real store in memory, which remembers what it was asked. */
export class OverheardStore extends MemoryStore {
  /** One text per trip: the kinds of its steps, for example `'lease+claim'`. */
  readonly asked: string[] = [];

  override enter(...args: Parameters<MemoryStore['enter']>): ReturnType<MemoryStore['enter']> {
    this.asked.push(args[0].map(kindOf).join('+'));
    return super.enter(...args);
  }

  override leave(...args: Parameters<MemoryStore['leave']>): ReturnType<MemoryStore['leave']> {
    this.asked.push(args[0].map(kindOf).join('+'));
    return super.leave(...args);
  }
}

function kindOf({ kind }: EnterStep | LeaveStep): string {
  return kind;
}
