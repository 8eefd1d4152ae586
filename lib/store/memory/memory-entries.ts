import { claimText, type ClaimRecord } from '../claim.js';
import { type CircuitRecord, circuitText } from '../circuit.js';
import type { Entry } from './memory-records.js';

/** A text: a lease's token, or what an application has set. Never dropped to make room. */
export class Text implements Entry {
  constructor(
    readonly value: string,
    readonly expiresAt: number,
  ) {}

  get evictable(): boolean {
    return false;
  }

  get fill(): number {
    return 0;
  }

  get bytes(): number {
    return this.value.length * 2;
  }

  text(): string {
    return this.value;
  }
}

/** The starts counted in a fixed window, or the sum of an `incr`. */
export class Window implements Entry {
  readonly evictable = true;
  readonly bytes = 40;

  constructor(
    public value: number,
    public fill: number,
    readonly expiresAt: number,
  ) {}

  text(): string {
    return String(this.value);
  }
}

/** The level of a leaky bucket, in microseconds of drain, and when it was so. */
export class Bucket implements Entry {
  readonly evictable = true;
  readonly bytes = 48;
  readonly expiresAt: number;

  constructor(
    readonly levelUs: number,
    readonly lastAtUs: number,
    readonly fill: number,
  ) {
    this.expiresAt = Math.ceil((lastAtUs + levelUs) / 1_000);
  }

  text(): string {
    return `${this.levelUs}:${this.lastAtUs}`;
  }
}

/** A claim or its outcome. Never dropped to make room: it would be done twice. */
export class Claim implements Entry, ClaimRecord {
  readonly state: ClaimRecord['state'];
  readonly run: number;
  readonly leaseUntil: number;
  readonly token: string;
  readonly fingerprint: string;
  readonly outcome: string;

  constructor(
    { state, run, leaseUntil, token, fingerprint, outcome }: ClaimRecord,
    readonly expiresAt: number,
  ) {
    this.state = state;
    this.run = run;
    this.leaseUntil = leaseUntil;
    this.token = token;
    this.fingerprint = fingerprint;
    this.outcome = outcome;
  }

  get evictable(): boolean {
    return false;
  }

  get fill(): number {
    return 0;
  }

  get bytes(): number {
    const { token, fingerprint, outcome } = this;
    return 64 + (token.length + fingerprint.length + outcome.length) * 2;
  }

  text(): string {
    return claimText(this);
  }
}

/** A circuit breaker. A closed one may be dropped, which forgets a few calls; any other never. */
export class Circuit implements Entry {
  readonly bytes = 1_024;
  readonly evictable: boolean;

  /** @param fill how near it is to opening */
  constructor(
    readonly record: CircuitRecord,
    public expiresAt: number,
    public fill = 0,
  ) {
    this.evictable = record.state === 'closed';
  }

  text(): string {
    return circuitText(this.record);
  }
}
