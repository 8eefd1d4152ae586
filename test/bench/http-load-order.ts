/** Chooses the key of a request, for every guard alike. */
export const KEY_HEADER = 'x-account';

export interface LoadOrder {
  readonly port: number;
  readonly seconds: number;
  readonly connections: number;
  /** How many keys the requests go round. */
  readonly keys: number;
}

export interface LoadReport {
  /** Requests answered with 2xx. */
  readonly answered: number;
  /** Requests refused or failed: there must be none. */
  readonly others: number;
  readonly seconds: number;
}
