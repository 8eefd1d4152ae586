import { describe, expect, it } from '@jest/globals';
import { type EndingKind, OUTCOME_TABLE, type OutcomeRow } from 'nestjs-cmdx';

const rows = Object.entries(OUTCOME_TABLE) as [EndingKind, OutcomeRow][];

/** The endings of which a column says this. */
function endings(says: (row: OutcomeRow) => boolean): readonly EndingKind[] {
  return rows.filter(([, row]) => says(row)).map(([kind]) => kind);
}

/** What the contract says, column by column; the table is written row by row. */
describe('what does an outcome mean?', () => {
  it('the breaker is told of a body that returned, of an error, and of an answer that is one; of nothing else', () => {
    expect(endings(({ sample }) => sample === 'success')).toEqual([
      'returned',
      'answered',
      'unanswered',
    ]);
    expect(endings(({ sample }) => sample === 'failure')).toEqual([
      'server_error',
      'nested_output_invalid',
      'in_doubt',
      'threw',
    ]);
  });

  it('a key is used up when the body returned, whatever became of the answer', () => {
    expect(endings(({ claim }) => claim === 'keep')).toEqual(['returned', 'answered']);
    expect(endings(({ claim }) => claim === 'tombstone')).toEqual(['unanswered', 'output_invalid']);
  });

  it('a body is repeated after an error of its own or a conflict in the database, never after a refusal, skip, fail or abort', () => {
    expect(endings(({ retry }) => retry)).toEqual(['conflict', 'client_error', 'threw']);
  });

  it('only an invalid input costs no quota', () => {
    expect(endings(({ quota }) => quota === 'not charged')).toEqual(['input_invalid']);
  });

  it('nothing keeps a lease', () => {
    expect(endings(({ lease }) => lease !== 'released')).toEqual([]);
  });

  it('a failure that the breaker counts leaves the key free, so that the work can be done again, unless it may be done', () => {
    const stuck = endings(({ sample, claim }) => sample === 'failure' && claim !== 'drop');
    expect(stuck).toEqual(['in_doubt']);
    expect(OUTCOME_TABLE.in_doubt.claim).toBe('abandon');
  });

  it('what is repeated has left no outcome behind', () => {
    expect(endings(({ retry, claim }) => retry && claim !== 'drop')).toEqual([]);
  });
});
