import { describe, expect, it } from '@jest/globals';
import { conflictOf, sqlStateOf } from '../../../lib/row-lock/sql-state.js';

const failure = (properties: object): Error => Object.assign(new Error('failed'), properties);

describe('where does a library hide what the database said?', () => {
  it.each([
    ['pg', failure({ code: '55P03' })],
    ['TypeORM', failure({ code: '55P03', driverError: failure({ code: '55P03' }) })],
    ['Drizzle', failure({ cause: failure({ code: '55P03' }) })],
    ['Sequelize', failure({ original: failure({ code: '55P03' }) })],
    [
      'Prisma',
      failure({
        code: 'P2010',
        meta: { driverAdapterError: failure({ cause: { originalCode: '55P03' } }) },
      }),
    ],
  ])('%s', (_library, error) => {
    expect(sqlStateOf(error)).toBe('55P03');
  });

  it.each([
    ['a code of Node', failure({ code: 'EPIPE' })],
    ['a code of Prisma', failure({ code: 'P2025' })],
    ['a number', failure({ code: 40001 })],
    ['an error without a code', new Error('40001')],
    ['no error', undefined],
    ['a text', '40001'],
  ])('%s is none', (_what, error) => {
    expect(sqlStateOf(error)).toBeUndefined();
  });

  it('of an error that is its own cause nothing is found, and the search ends', () => {
    const error = failure({});
    Object.assign(error, { cause: error });
    expect(sqlStateOf(error)).toBeUndefined();
  });

  it('a deadlock and a serialization failure are conflicts, a busy lock and a constraint are none', () => {
    const states = ['40P01', '40001', '55P03', '23505', 'P0001'];
    expect(states.filter((code) => conflictOf(failure({ code })))).toEqual(['40P01', '40001']);
  });
});
