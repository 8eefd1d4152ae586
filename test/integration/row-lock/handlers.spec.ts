import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import {
  type ArgumentMetadata,
  Body,
  type CallHandler,
  Controller,
  Get,
  Injectable,
  type NestInterceptor,
  Param,
  type PipeTransform,
  Post,
  Query,
  Redirect,
  Req,
  Res,
  type Type,
  UseInterceptors,
  ValidationPipe,
} from '@nestjs/common';
import { IsEmail, IsInt } from 'class-validator';
import {
  arg,
  type CmdxModuleOptions,
  currentInvocation,
  currentTransaction,
  describePolicies,
  fromRequest,
  input,
  InputSchema,
  LockedRow,
  OutputSchema,
  perTask,
  WithRowLock,
} from 'nestjs-cmdx';
import { PgTransactions } from 'nestjs-cmdx/row-lock';
import { Pool, type PoolClient } from 'pg';
import { map, mergeMap, Observable, of } from 'rxjs';
import * as z from 'zod';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import {
  ADAPTERS,
  closeAppsAfterEach,
  type HttpScenario,
  startHttp,
} from '../../support/http-app.js';
import { borrowPostgres, type PostgresDatabases } from '../../support/postgres-server.js';
import { settledWithin, until } from '../../support/time.js';

closeAppsAfterEach();
closeApplicationsAfterEach();

let databases: PostgresDatabases;
let pool: Pool;
/** How often the library has taken a connection of the pool. */
let taken = 0;
/** Somebody else, past the library. */
let other: Pool;

beforeAll(async () => {
  databases = await borrowPostgres();
  const connectionString = await databases.createDatabase();
  pool = new Pool({ connectionString });
  pool.on('acquire', () => void (taken += 1));
  other = new Pool({ connectionString });
  await other.query(
    'CREATE TABLE invoices (id text PRIMARY KEY, status text NOT NULL); CREATE TABLE numbers (id int PRIMARY KEY)',
  );
}, 60_000);
afterAll(async () => {
  await pool.end();
  await other.end();
  await databases.stop();
});
beforeEach(async () => {
  taken = 0;
  await other.query(
    "TRUNCATE invoices, numbers; INSERT INTO invoices VALUES ('a', 'new'), ('b', 'new'); INSERT INTO numbers VALUES (1), (2)",
  );
});

interface Invoice {
  readonly id: string;
  readonly status: string;
}

const NEW_A: Invoice = { id: 'a', status: 'new' };

/** Marks an invoice as paid in the transaction that is open here. */
async function markPaid(id: string): Promise<void> {
  const transaction = currentTransaction<PoolClient>();
  await transaction?.query("UPDATE invoices SET status = 'paid' WHERE id = $1", [id]);
}

async function statusOf(id: string): Promise<string | undefined> {
  const { rows } = await other.query<Invoice>('SELECT status FROM invoices WHERE id = $1', [id]);
  return rows[0]?.status;
}

/** Runs a question while somebody else holds the row. */
async function whileHeld<T>(
  question: (holder: PoolClient) => Promise<T>,
  { id = 'a', by = "SELECT FROM invoices WHERE id = '?' FOR UPDATE" } = {},
): Promise<T> {
  const holder = await other.connect();
  try {
    await holder.query(`BEGIN; ${by.replace('?', id)}`);
    return await question(holder);
  } finally {
    await holder.query('ROLLBACK');
    holder.release();
  }
}

function start(
  adapter: (typeof ADAPTERS)[number],
  controller: Type,
  scenario: HttpScenario = {},
  isolationLevel?: 'repeatable read',
) {
  const rowLock = new PgTransactions({ pool, ...(isolationLevel && { isolationLevel }) });
  return startHttp(adapter, {
    controllers: [controller],
    ...scenario,
    cmdx: { rowLock, ...scenario.cmdx },
  });
}

describe.each(ADAPTERS)('what is a client told of a row (%s)?', (adapter) => {
  @Controller()
  class Invoices {
    @Post('pay/:id')
    @WithRowLock('invoices', input('id'), { wait: 0 })
    async pay(@Param('id') id: string): Promise<string> {
      await markPaid(id);
      return 'paid';
    }

    @Post('skip/:id')
    @WithRowLock('invoices', input('id'), { wait: 0, onBusy: 'skip' })
    async paySkipping(@Param('id') id: string): Promise<object | undefined> {
      return { id };
    }

    @Post('wait/:id')
    @WithRowLock('invoices', input('id'), { wait: '20s' })
    async payPatiently(@Param('id') id: string): Promise<void> {
      await markPaid(id);
    }

    @Get('number')
    @WithRowLock('numbers', input('id'))
    async number(@Query('id') _id: unknown, @LockedRow() row?: object): Promise<unknown> {
      return row;
    }
  }

  it('409 while somebody else holds it, and nothing about table, key or database', async () => {
    const { post } = await start(adapter, Invoices);
    const refused = await whileHeld(() => post('/pay/a'));
    expect([refused.status, refused.body]).toEqual([
      409,
      {
        statusCode: 409,
        error: 'Conflict',
        message: 'This record is being changed.',
        code: 'row_locked',
      },
    ]);
    expect(await post('/pay/a')).toMatchObject({ status: 201, text: 'paid' });
    expect(await statusOf('a')).toBe('paid');
  });

  it('202 where such a call is skipped', async () => {
    const { post } = await start(adapter, Invoices);
    const skipped = await whileHeld(() => post('/skip/a'));
    expect([skipped.status, skipped.body]).toEqual([
      202,
      { status: 'skipped', code: 'row_locked' },
    ]);
    expect(await post('/skip/a')).toMatchObject({ status: 201, body: { id: 'a' } });
  });

  it('404 for a row that is not there', async () => {
    const { post } = await start(adapter, Invoices);
    const { status, body } = await post('/pay/z');
    expect([status, body]).toEqual([
      404,
      {
        statusCode: 404,
        error: 'Not Found',
        message: 'There is no such record.',
        code: 'row_missing',
      },
    ]);
  });

  it('409 when it was changed meanwhile and the isolation cannot be kept', async () => {
    const { post } = await start(adapter, Invoices, {}, 'repeatable read');
    const refused = await whileHeld(
      async (holder) => {
        const answer = post('/wait/a');
        const waiting =
          "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        await until(
          async () => (await holder.query(waiting)).rowCount === 1,
          'a request that waits',
        );
        await holder.query('COMMIT');
        return answer;
      },
      { by: "UPDATE invoices SET status = 'held' WHERE id = '?'" },
    );
    expect([refused.status, refused.body]).toEqual([
      409,
      {
        statusCode: 409,
        error: 'Conflict',
        message: 'This record was changed meanwhile, please try again.',
        code: 'row_conflict',
      },
    ]);
    expect(await statusOf('a')).toBe('held');
  });

  it.each(['id=x', 'id=99999999999999999999', 'id=1.5', 'id=1%20OR%201=1', 'id=%00', 'id=1&id=x'])(
    '400 for a key that its column cannot hold: %s',
    async (query) => {
      const { get } = await start(adapter, Invoices);
      const { status, body } = await get(`/number?${query}`);
      expect([status, body]).toEqual([
        400,
        {
          statusCode: 400,
          error: 'Bad Request',
          message: 'A value of the request has the wrong form.',
          code: 'key_invalid',
        },
      ]);
      expect(pool.idleCount).toBe(pool.totalCount);
    },
  );

  it.each(['', '?id='])('400 for a key that is blank: %j', async (query) => {
    const { get } = await start(adapter, Invoices);
    const { status, body } = await get(`/number${query}`);
    expect([status, body]).toEqual([
      400,
      {
        statusCode: 400,
        error: 'Bad Request',
        message: 'A required value is missing.',
        code: 'key_missing',
      },
    ]);
    expect(taken).toBe(0);
  });

  it('the rows of a list, where the request may hold one', async () => {
    const { get } = await start(adapter, Invoices);
    expect((await get('/number?id=1')).body).toEqual({ id: 1 });
    expect((await get('/number?id=2&id=1')).body).toEqual([{ id: 2 }, { id: 1 }]);
  });
});

describe.each(ADAPTERS)('which argument is the locked row (%s)?', (adapter) => {
  class NewStatus {
    @IsInt()
    readonly status!: number;
  }

  /** As a pipe would refuse every row of the table. */
  class StrictRow {
    @IsEmail()
    readonly id!: string;
  }

  @Controller(':id')
  class Invoices {
    @Post('before')
    @WithRowLock('invoices', input('id'))
    async before(
      @LockedRow() row: StrictRow,
      @Param('id') id: string,
      @Body() body: NewStatus,
      @Query('by') by: string,
    ): Promise<unknown> {
      return { row, id, body, by };
    }

    @Post('between')
    @WithRowLock('invoices', input('id'))
    async between(
      @Body() body: NewStatus,
      @LockedRow() row: StrictRow,
      @Param('id') id: string,
      @Query('by') by: string,
    ): Promise<unknown> {
      return { row, id, body, by };
    }

    @Post('after')
    @WithRowLock('invoices', input('id'))
    async after(
      @Query('by') by: string,
      @Body() body: NewStatus,
      @Param('id') id: string,
      @LockedRow() row?: StrictRow,
    ): Promise<unknown> {
      return { row, id, body, by };
    }

    @Post('alone')
    @WithRowLock('invoices', fromRequest<{ params: { id: string } }>(({ params }) => params.id))
    async alone(@LockedRow() row?: StrictRow): Promise<unknown> {
      return row;
    }

    @Post('request')
    @WithRowLock('invoices', input('id'))
    async request(
      @Req() request: { readonly url: string },
      @LockedRow() row: StrictRow,
      @Param('id') _id: string,
    ): Promise<unknown> {
      return { url: request.url, row, same: row === (await currentInvocation()?.row) };
    }
  }

  const seen: ArgumentMetadata[] = [];
  const witness: PipeTransform = {
    transform(value: unknown, metadata) {
      seen.push(metadata);
      return value;
    },
  };
  const strict = new ValidationPipe({
    transform: true,
    whitelist: true,
    forbidNonWhitelisted: true,
  });
  const startStrictly = () =>
    start(adapter, Invoices, { setUp: (app) => app.useGlobalPipes(witness, strict) });

  it.each(['before', 'between', 'after'])(
    'the one that says so, %s the others, and no pipe sees it',
    async (place) => {
      seen.length = 0;
      const { post } = await startStrictly();
      expect(await post(`/a/${place}?by=ada`, { status: 3 })).toMatchObject({
        status: 201,
        body: { row: NEW_A, id: 'a', body: { status: 3 }, by: 'ada' },
      });
      expect(seen.map(({ type }) => type).toSorted()).toEqual(['body', 'param', 'query']);
      expect(await post(`/a/${place}?by=ada`, { status: 3, row: 1 })).toMatchObject({
        status: 400,
        body: { message: ['property row should not exist'] },
      });
    },
  );

  it('the only one, or one beside the request', async () => {
    const { post } = await startStrictly();
    expect((await post('/a/alone')).body).toEqual(NEW_A);
    expect((await post('/a/request')).body).toEqual({ url: '/a/request', row: NEW_A, same: true });
  });
});

describe.each(ADAPTERS)('when does a handler commit (%s)?', (adapter) => {
  const witnessed: unknown[] = [];

  @Injectable()
  class Witness implements NestInterceptor {
    intercept(_context: unknown, next: CallHandler): Observable<unknown> {
      return next.handle().pipe(
        mergeMap(async (value) => {
          witnessed.push([await statusOf('a'), currentTransaction()]);
          return value;
        }),
      );
    }
  }

  @Injectable()
  class Breaks implements NestInterceptor {
    intercept(_context: unknown, next: CallHandler): Observable<unknown> {
      return next.handle().pipe(
        map(() => {
          throw new Error('no answer can be made of it');
        }),
      );
    }
  }

  @Controller()
  class Invoices {
    @Post('witnessed')
    @UseInterceptors(Witness)
    @WithRowLock('invoices', arg(0))
    async witnessed(@Query('id') id: string): Promise<string> {
      await markPaid(id);
      return 'paid';
    }

    @Post('broken')
    @UseInterceptors(Breaks)
    @WithRowLock('invoices', arg(0))
    async broken(@Query('id') id: string): Promise<string> {
      await markPaid(id);
      return 'paid';
    }

    @Post('throws')
    @WithRowLock('invoices', arg(0))
    async throws(@Query('id') id: string): Promise<string> {
      await markPaid(id);
      throw new Error('no');
    }

    @Post('stream')
    @WithRowLock('invoices', arg(0))
    async stream(@Query('id') id: string): Promise<unknown> {
      await markPaid(id);
      return of('paid');
    }

    @Post('output')
    @WithRowLock('invoices', arg(0))
    @OutputSchema(z.object({ id: z.number() }))
    async output(@Query('id') id: string): Promise<{ id: number }> {
      await markPaid(id);
      return { id: id as unknown as number };
    }
  }

  it('before inner interceptors and the client have its value, and they are in no transaction', async () => {
    const { post } = await start(adapter, Invoices);
    witnessed.length = 0;
    expect(await post('/witnessed?id=a')).toMatchObject({ status: 201, text: 'paid' });
    expect(witnessed).toEqual([['paid', undefined]]);
  });

  it('before an inner interceptor fails: what is done is done', async () => {
    const { post } = await start(adapter, Invoices);
    expect(await post('/broken?id=a')).toMatchObject({ status: 500 });
    expect(await statusOf('a')).toBe('paid');
  });

  it('not at all when the body throws', async () => {
    const { post } = await start(adapter, Invoices);
    expect(await post('/throws?id=a')).toMatchObject({ status: 500 });
    expect(await statusOf('a')).toBe('new');
  });

  it('not at all when the body answers with a stream, which would go on without the lock', async () => {
    const { post } = await start(adapter, Invoices);
    expect(await post('/stream?id=a')).toMatchObject({ status: 500 });
    expect(await statusOf('a')).toBe('new');
  });

  it('before its output is checked: one that is refused is committed', async () => {
    const { post } = await start(adapter, Invoices);
    expect(await post('/output?id=a')).toMatchObject({
      status: 500,
      body: { code: 'output_invalid' },
    });
    expect(await statusOf('a')).toBe('paid');
  });
});

describe('what do the schemas of a handler and its row lock see?', () => {
  @Controller()
  class Invoices {
    @Post(':id')
    @InputSchema(z.string().trim().toLowerCase().min(1, 'empty'))
    @WithRowLock('invoices', input('id'))
    async read(@Param('id') id: string, @LockedRow() row?: Invoice): Promise<unknown> {
      return { id, row };
    }
  }

  it('the key is what the schema makes of the input, and an invalid one takes no connection', async () => {
    const { post } = await start('express', Invoices);
    expect((await post('/%20A%20')).body).toEqual({ id: 'a', row: NEW_A });
    expect(taken).toBe(1);
    expect(await post('/%20%20')).toMatchObject({ status: 400, body: { message: ['empty'] } });
    expect(taken).toBe(1);
  });
});

describe('which handlers does @WithRowLock on a controller reach?', () => {
  @WithRowLock('invoices', input('id'), { wait: 0, mode: 'no key update' })
  abstract class Locking {
    @Get('held/:id')
    held(@Param('id') _id: string, @LockedRow() row?: Invoice): unknown {
      return { row, inside: currentTransaction() !== undefined };
    }

    @Get('free/:id')
    @WithRowLock(false)
    async free(@Param('id') _id: string): Promise<object> {
      return { inside: currentTransaction() !== undefined };
    }

    @Get('same/:id')
    @WithRowLock()
    async same(@Param('id') _id: string): Promise<object> {
      return { inside: currentTransaction() !== undefined };
    }

    @Get('lax/:id')
    @WithRowLock({ onMissing: 'run' })
    async lax(@Param('id') _id: string, @LockedRow() row?: Invoice): Promise<object> {
      return { row: row ?? null };
    }
  }

  @Controller('base')
  class Base extends Locking {}

  @Controller('leaf')
  @WithRowLock({ onBusy: 'skip' })
  class Leaf extends Locking {
    @Get('free/:id')
    @WithRowLock()
    override async free(@Param('id') id: string): Promise<object> {
      return super.free(id);
    }
  }

  const startBoth = () => start('express', Base, { controllers: [Base, Leaf] });

  it('all of them, one that says false left out, one that says () as it is', async () => {
    const { get } = await startBoth();
    expect((await get('/base/held/a')).body).toEqual({ row: NEW_A, inside: true });
    expect((await get('/base/free/a')).body).toEqual({ inside: false });
    expect((await get('/base/free/z')).body).toEqual({ inside: false });
    expect((await get('/base/same/a')).body).toEqual({ inside: true });
    expect((await get('/base/same/z')).status).toBe(404);
  });

  it('with options that are merged one by one, from the base class to the leaf', async () => {
    const { get } = await startBoth();
    expect((await get('/base/lax/z')).body).toEqual({ row: null });
    await whileHeld(async () => {
      expect(await get('/base/lax/a')).toMatchObject({ status: 409 });
      expect(await get('/leaf/lax/a')).toMatchObject({ status: 202, body: { code: 'row_locked' } });
      // Turned on again below the base class that has turned it off.
      expect(await get('/leaf/free/a')).toMatchObject({ status: 202 });
    });
    expect((await get('/leaf/lax/z')).body).toEqual({ row: null });
    expect((await get('/leaf/held/z')).status).toBe(404);
    expect((await get('/leaf/free/a')).body).toEqual({ inside: true });
    // A lock for update would not be to be had beside this one.
    await whileHeld(
      async () => expect((await get('/leaf/held/a')).body).toEqual({ row: NEW_A, inside: true }),
      { by: "SELECT FROM invoices WHERE id = '?' FOR KEY SHARE" },
    );
  });

  it('as describePolicies tells', () => {
    const options = {
      mode: 'no key update',
      wait: 0,
      onBusy: 'fail',
      onMissing: 'fail',
      lockFree: false,
    };
    const about = { target: 'invoices', key: "input('id')" };
    expect(describePolicies(Base, 'held').rowLock).toEqual({ ...about, options });
    expect(describePolicies(Leaf, 'lax').rowLock).toEqual({
      ...about,
      options: { ...options, onBusy: 'skip', onMissing: 'run' },
    });
    expect(describePolicies(Base, 'free').rowLock).toBeUndefined();
    expect(Object.isFrozen(describePolicies(Base, 'held').rowLock)).toBe(true);
  });
});

describe('when do gates and defaults decide?', () => {
  @Controller()
  class Invoices {
    @Get('if/:id')
    @WithRowLock('invoices', input('id'), { if: 'isStrict' })
    async strict(
      @Param('id') _id: string,
      @Query('mode') _mode: string,
      @LockedRow() row?: Invoice,
    ): Promise<object> {
      return { row: row ?? null, inside: currentTransaction() !== undefined };
    }

    @Get('unless/:id')
    @WithRowLock('invoices', input('id'), { unless: (id: string) => id.startsWith('draft') })
    async notDraft(@Param('id') id: string): Promise<object> {
      return { id, inside: currentTransaction() !== undefined };
    }

    @Get('alone')
    @WithRowLock('invoices', 'a', { if: false })
    async alone(@LockedRow() row?: Invoice): Promise<object> {
      return { row: row ?? null };
    }

    @Get('default/:id')
    @WithRowLock('invoices', input('id'))
    async byDefault(@Param('id') _id: string, @LockedRow() row?: Invoice): Promise<object> {
      return { row: row ?? null };
    }

    @Get('own/:id')
    @WithRowLock('invoices', input('id'), { onMissing: 'fail' })
    async own(@Param('id') _id: string): Promise<object> {
      return {};
    }

    isStrict(_id: string, mode: string): boolean {
      return mode === 'strict';
    }
  }

  it.each(ADAPTERS)(
    'a call that a gate excludes is in no transaction and has no row (%s)',
    async (adapter) => {
      const { get } = await start(adapter, Invoices);
      expect((await get('/if/a?mode=strict')).body).toEqual({ row: NEW_A, inside: true });
      expect((await get('/unless/a')).body).toEqual({ id: 'a', inside: true });
      expect(taken).toBe(2);
      expect((await get('/if/a?mode=lax')).body).toEqual({ row: null, inside: false });
      expect((await get('/unless/draft-1')).body).toEqual({ id: 'draft-1', inside: false });
      expect((await get('/alone')).body).toEqual({ row: null });
      expect(taken).toBe(2);
    },
  );

  it('what forRoot says is the default, and what the method says wins', async () => {
    const { get } = await start('express', Invoices, {
      cmdx: { defaults: { rowLock: { wait: 0, onMissing: 'run' } } },
    });
    await whileHeld(async () => {
      const refused = await settledWithin(2_000, get('/default/a'));
      expect(refused).toMatchObject({ status: 409, body: { code: 'row_locked' } });
    });
    expect((await get('/default/z')).body).toEqual({ row: null });
    expect((await get('/own/z')).status).toBe(404);
  });

  it('what the caller of a service gives in its place is neither row nor key', async () => {
    @Injectable()
    class Ledger {
      @WithRowLock('invoices', input('id'), { if: (_: object, __: unknown, on: boolean) => on })
      async read(
        _order: { id: string },
        @LockedRow() row: unknown,
        _on: boolean,
      ): Promise<unknown> {
        return row;
      }
    }
    const rowLock = new PgTransactions({ pool });
    const ledger = (await boot({ providers: [Ledger] }, { rowLock })).get(Ledger);
    expect(await ledger.read({ id: 'a' }, { id: 'b' }, true)).toEqual(NEW_A);
    expect(await ledger.read({ id: 'a' }, { id: 'b' }, false)).toBeUndefined();
  });
});

describe('what is refused when the application starts?', () => {
  const startOf = (controller: Type, options: CmdxModuleOptions = {}) =>
    boot({ controllers: [controller] }, { rowLock: new PgTransactions({ pool }), ...options });

  @Controller()
  class Answering {
    @Post(':id')
    @WithRowLock('invoices', input('id'), { onBusy: 'skip' })
    async pay(@Param('id') _id: string, @Res() _response: object): Promise<undefined> {}
  }

  @Controller()
  class Redirecting {
    @Post(':id')
    @Redirect('/')
    @WithRowLock('invoices', input('id'), { onBusy: 'skip' })
    async pay(@Param('id') _id: string): Promise<undefined> {}
  }

  @Controller()
  class Streaming {
    @Post(':id')
    @WithRowLock('invoices', input('id'))
    pay(@Param('id') id: string): Observable<string> {
      return of(id);
    }
  }

  @Controller()
  class Unlocked {
    @Post(':id')
    async pay(@Param('id') _id: string, @LockedRow() _row?: object): Promise<void> {}

    @Post('lock/:id')
    @WithRowLock('invoices', input('id'))
    async other(@Param('id') _id: string): Promise<void> {}
  }

  @Controller()
  class TurnedOff {
    @Post(':id')
    @WithRowLock(false)
    async pay(@Param('id') _id: string, @LockedRow() _row?: object): Promise<void> {}
  }

  @Controller()
  class Misspelled {
    @Post(':id')
    @WithRowLock('invoices', input('ids'))
    async pay(@Param('id') _id: string, @LockedRow() _row?: object): Promise<void> {}
  }

  @Controller()
  class PerTask {
    @Post()
    @WithRowLock('invoices', perTask as never)
    async pay(): Promise<void> {}
  }

  @Controller()
  class Keyless {
    @Post()
    @WithRowLock({ wait: 0 })
    async pay(): Promise<void> {}
  }

  @Controller()
  class Passing {
    @Post(':id')
    @WithRowLock('invoices', input('id'), { onBusy: 'skip' })
    async pay(
      @Param('id') _id: string,
      @Res({ passthrough: true }) _response: object,
    ): Promise<undefined> {}
  }

  it.each<[Type, RegExp]>([
    [Answering, /Answering\.pay: @WithRowLock: .*skips the body; got @Res\(\)/],
    [Redirecting, /Redirecting\.pay: @WithRowLock: .*got @Redirect\(\)/],
    [Streaming, /Streaming\.pay: @WithRowLock: expected a method that returns a Promise/],
    [Unlocked, /Unlocked\.pay: @LockedRow: expected @WithRowLock on the method, got none/],
    [TurnedOff, /TurnedOff\.pay: @LockedRow: expected @WithRowLock on the method, got none/],
    [
      Misspelled,
      /Misspelled\.pay: input\('ids'\) can never have a value: .*the names there are: id/,
    ],
    [PerTask, /PerTask\.pay: @WithRowLock: expected a key of a row, got perTask/],
    [Keyless, /Keyless\.pay: @WithRowLock: expected a table and a key, own or inherited, got none/],
  ])('%p', async (controller, message) => {
    await expect(startOf(controller)).rejects.toMatchObject({
      name: 'DefinitionError',
      message: expect.stringMatching(message),
    });
  });

  it('not a skip of a handler whose response passes through', async () => {
    await startOf(Passing);
  });

  it('a default that skips, and options that there are none of', async () => {
    const started = (rowLock: object) =>
      boot({}, { rowLock: new PgTransactions({ pool }), defaults: { rowLock } });
    await expect(started({ onBusy: 'skip' })).rejects.toThrow(
      /option "defaults\.rowLock": "onBusy: skip" must be written on the method/,
    );
    await expect(started({ table: 'invoices' })).rejects.toThrow(/unknown option "table"/);
    await expect(started({ wait: -1 })).rejects.toThrow(/"wait"/);
  });
});
