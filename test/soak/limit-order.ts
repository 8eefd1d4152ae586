/** Fewer than the processes start together. */
export const MAX = 150;

export interface LimitOrder {
  readonly limiter: 'window' | 'bucket';
  readonly key: string;
  /** How many starts this process makes at once. */
  readonly times: number;
}
