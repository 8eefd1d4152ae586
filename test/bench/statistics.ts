/** What several rounds of one measurement say. */
export interface Summary {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export function summarize(values: readonly number[]): Summary {
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) };
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

/**
 * Measures every subject once per round, one after the other, so that a slow minute of the machine
 * falls on all of them alike.
 *
 * @returns one list of values per subject, in the order of the subjects
 */
export async function interleave<T, M>(
  subjects: readonly T[],
  rounds: number,
  measure: (subject: T) => Promise<M>,
): Promise<M[][]> {
  const values: M[][] = subjects.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const [position, subject] of subjects.entries()) {
      values[position]?.push(await measure(subject));
    }
  }
  return values;
}
