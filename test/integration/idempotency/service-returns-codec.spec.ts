import { isDeepStrictEqual } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { Injectable, Logger } from '@nestjs/common';
import {
  arg,
  DuplicateError,
  type IdempotencyOptions,
  IdempotentBy,
  MemoryStore,
  type OutcomeCodec,
} from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';

closeApplicationsAfterEach();
let warnings: string[];
beforeEach(() => {
  warnings = [];
  jest.spyOn(Logger.prototype, 'warn').mockImplementation((line: unknown) => {
    warnings.push(String(line));
  });
});
afterEach(() => void jest.restoreAllMocks());

class User {
  readonly roles = new Set(['reader']);
  readonly since = new Date(0);

  constructor(
    readonly id: number,
    public name: string,
  ) {}

  get shown(): string {
    return `${this.name} (${this.id})`;
  }

  rename(name: string): void {
    this.name = name;
  }
}

class Admin extends User {
  readonly powers = 'all';
}

/** Its own property has the name of an accessor of the class. */
class Counter {
  constructor() {
    Object.defineProperty(this, 'count', { value: 5, enumerable: true });
  }

  get count(): number {
    return -1;
  }
}

class Ledger extends Map<string, number> {}

class Refusal extends Error {}

@Injectable()
class Users {
  runs = 0;

  @IdempotentBy(arg(0), { returns: User })
  async find(_id: string, make: () => unknown): Promise<unknown> {
    this.runs += 1;
    return make();
  }

  @IdempotentBy(arg(0), { returns: Counter })
  async count(_id: string): Promise<Counter> {
    this.runs += 1;
    return new Counter();
  }
}

function answersOf(returns: NonNullable<IdempotencyOptions['returns']>) {
  @Injectable()
  class Answers {
    @IdempotentBy(arg(0), { returns })
    async give(_id: string, make: () => unknown): Promise<unknown> {
      return make();
    }
  }
  return Answers;
}

describe('What does a duplicate get of a method that returns instances of a class?', () => {
  it('an instance, with all that it had and all that its class can do', async () => {
    const { get, store } = await boot({ providers: [Users] });
    const users = get(Users);
    const first = await users.find('1', () => new User(1, 'Ada'));
    const again = (await users.find('1', () => undefined)) as User;
    expect(isDeepStrictEqual(again, first)).toBe(true);
    expect(again).toBeInstanceOf(User);
    expect(again).not.toBe(first);
    again.rename('Bob');
    expect(again.shown).toBe('Bob (1)');
    expect(users.runs).toBe(1);
    // The store holds properties, and never the name of a class to make something of.
    expect(await store.get('cmdx:idem:Users.find:1')).not.toContain('User"');
    expect(warnings).toEqual([]);
  });

  it('an array of instances', async () => {
    const { get } = await boot({ providers: [Users] });
    const make = () => [new User(1, 'Ada'), new User(2, 'Bob')];
    await get(Users).find('1', make);
    const again = await get(Users).find('1', () => undefined);
    expect(isDeepStrictEqual(again, make())).toBe(true);
  });

  it.each([
    ['nothing', () => undefined],
    ['none of them', () => []],
    ['something plain', () => ({ id: 1 })],
  ])('%s, where that was the answer', async (_name, make) => {
    const { get } = await boot({ providers: [Users] });
    await get(Users).find('1', make);
    expect(isDeepStrictEqual(await get(Users).find('1', () => 'again'), make())).toBe(true);
    expect(get(Users).runs).toBe(1);
  });

  it.each([
    ['an instance of a derived class, which would come back as another', () => new Admin(1, 'Ada')],
    ['an instance of another class', () => new Counter()],
    ['an instance inside something else', () => ({ user: new User(1, 'Ada') })],
    ['an array with something else in it', () => [new User(1, 'Ada'), null]],
    ['an array of which one is derived', () => [new User(1, 'Ada'), new Admin(2, 'Bob')]],
    [
      'an instance that holds another',
      () => Object.assign(new User(1, 'Ada'), { friend: new User(2, 'Bob') }),
    ],
    [
      'an instance with a key that is a symbol',
      () => Object.assign(new User(1, 'Ada'), { [Symbol.for('a')]: 1 }),
    ],
  ])('DuplicateError for %s', async (_name, make) => {
    const { get } = await boot({ providers: [Users] });
    const made = make();
    expect(await get(Users).find('1', () => made)).toBe(made);
    await expect(get(Users).find('1', make)).rejects.toMatchObject({ replayable: false });
    expect(get(Users).runs).toBe(1);
    expect(warnings).toHaveLength(1);
  });

  it.each([
    ['a Date', Date, () => new Date(5)],
    ['a Map', Map, () => new Map([[1, new Date(5)]])],
    ['a Buffer', Buffer, () => Buffer.from('bytes')],
    ['an array of Dates', Date, () => [new Date(5), new Date(6)]],
    ['a plain object', Object, () => ({ id: 1, at: new Date(5) })],
  ])('%s, which needs no class to be told', async (_name, returns, make) => {
    const Answers = answersOf(returns);
    const answers = (await boot({ providers: [Answers] })).get(Answers);
    await answers.give('1', make);
    expect(isDeepStrictEqual(await answers.give('1', () => 'again'), make())).toBe(true);
    expect(warnings).toEqual([]);
  });

  it.each([
    ['a class of Maps', Ledger, () => new Ledger([['a', 1]])],
    ['a class of errors', Refusal, () => new Refusal('no')],
    ['an array of them', Ledger, () => [new Ledger([['a', 1]])]],
  ])('DuplicateError for %s, which holds more than properties', async (_name, returns, make) => {
    const Answers = answersOf(returns);
    const answers = (await boot({ providers: [Answers] })).get(Answers);
    await answers.give('1', make);
    await expect(answers.give('1', make)).rejects.toMatchObject({ replayable: false });
    expect(warnings).toHaveLength(1);
  });

  it('what the instance had, whatever accessors its class has', async () => {
    const { get } = await boot({ providers: [Users] });
    const first = await get(Users).count('1');
    const again = await get(Users).count('1');
    expect([first.count, again.count]).toEqual([5, 5]);
  });

  it('DuplicateError when a later version of the class says no longer what it returns', async () => {
    const make = (options: object) => {
      class Invoices {
        @IdempotentBy(arg(0), options)
        async find(_id: string): Promise<User> {
          return new User(1, 'Ada');
        }
      }
      return (Injectable()(Invoices), Invoices);
    };
    const store = new MemoryStore();
    const Before = make({ returns: User });
    const before = await boot({ providers: [Before] }, { store });
    await before.get(Before).find('1');
    const After = make({});
    const after = await boot({ providers: [After] }, { store });
    await expect(after.get(After).find('1')).rejects.toBeInstanceOf(DuplicateError);
    await expect(after.get(After).find('1')).rejects.toMatchObject({ replayable: false });
    expect(warnings).toEqual([
      expect.stringMatching(
        /^Invoices\.find: @IdempotentBy: an answer could not be read \(.*"returns" is gone\)/,
      ),
    ]);
  });
});

const reversing: OutcomeCodec = {
  encode: (value) => [...JSON.stringify(value)].toReversed().join(''),
  decode: (text) => JSON.parse([...text].toReversed().join('')),
};

const refusing: OutcomeCodec = {
  encode: () => {
    throw new Error('not encodable today');
  },
  decode: () => undefined,
};

const forgetful: OutcomeCodec = {
  encode: () => 'x',
  decode: () => {
    throw new Error('not decodable today');
  },
};

@Injectable()
class Reports {
  runs = 0;

  @IdempotentBy(arg(0), { codec: reversing })
  async reversed(_id: string): Promise<object> {
    return this.#write();
  }

  @IdempotentBy(arg(0), { codec: reversing, returns: User })
  async user(_id: string): Promise<User> {
    this.runs += 1;
    return new User(this.runs, 'Ada');
  }

  @IdempotentBy(arg(0), { codec: refusing })
  async unencodable(_id: string): Promise<object> {
    return this.#write();
  }

  @IdempotentBy(arg(0), { codec: forgetful })
  async undecodable(_id: string): Promise<object> {
    return this.#write();
  }

  @IdempotentBy(arg(0), { codec: forgetful, onDuplicate: 'fail' })
  async undecodableFails(_id: string): Promise<object> {
    return this.#write();
  }

  @IdempotentBy(arg(0), { codec: { encode: JSON.stringify, decode: JSON.parse } })
  async nothing(_id: string): Promise<void> {
    this.#write();
  }

  @IdempotentBy(arg(0), { maxBytes: 100 })
  async bounded(_id: string, text: string): Promise<string> {
    this.#write();
    return text;
  }

  @IdempotentBy(arg(0), { maxBytes: 0 })
  async unkept(_id: string): Promise<void> {
    this.#write();
  }

  @IdempotentBy(arg(0))
  async byDefault(_id: string, text: string): Promise<string> {
    this.#write();
    return text;
  }

  #write(): object {
    this.runs += 1;
    return { run: this.runs };
  }
}

describe('What does a codec of the application change?', () => {
  it('the text in the store, and nothing about the answer', async () => {
    const { get, store } = await boot({ providers: [Reports] });
    await get(Reports).reversed('1');
    expect(await store.get('cmdx:idem:Reports.reversed:1')).toMatch(/\}1:"nur"\{$/);
    expect(await get(Reports).reversed('1')).toEqual({ run: 1 });
  });

  it('it is given the properties of an instance', async () => {
    const { get } = await boot({ providers: [Reports] });
    await get(Reports).user('1');
    const again = await get(Reports).user('1');
    expect(again).toBeInstanceOf(User);
    expect(again.shown).toBe('Ada (1)');
  });

  it.each([
    ['unencodable', 'kept (not encodable today)'],
    ['undecodable', 'read (not decodable today)'],
    ['undecodableFails', 'read (not decodable today)'],
    ['nothing', 'kept (the codec answered no text, but undefined)'],
  ] as const)('what it cannot do is told once, and never runs again (%s)', async (method, told) => {
    const { get } = await boot({ providers: [Reports] });
    const reports = get(Reports);
    await reports[method]('1');
    await reports[method]('2');
    for (const id of ['1', '2', '1']) {
      await expect(reports[method](id)).rejects.toMatchObject({
        code: 'duplicate',
        replayable: false,
      });
    }
    expect(reports.runs).toBe(2);
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toContain(
      `Reports.${method}: @IdempotentBy: an answer could not be ${told}`,
    );
  });
});

describe('How large may an answer be?', () => {
  it('maxBytes, counted in bytes of what is kept', async () => {
    const { get, store } = await boot({ providers: [Reports] });
    const reports = get(Reports);
    await reports.bounded('probe', '');
    const kept = (await store.get('cmdx:idem:Reports.bounded:probe'))
      ?.split(':')
      .slice(5)
      .join(':');
    const room = 100 - Buffer.byteLength(kept as string);
    for (const [id, text, fits] of [
      ['1', 'x'.repeat(room), true],
      ['2', 'x'.repeat(room + 1), false],
      ['3', 'é'.repeat(Math.ceil((room + 1) / 2)), false],
    ] as const) {
      expect(await reports.bounded(id, text)).toBe(text);
      const again = reports.bounded(id, 'again');
      if (fits) await expect(again).resolves.toBe(text);
      else await expect(again).rejects.toMatchObject({ replayable: false });
    }
    expect(reports.runs).toBe(4);
    expect(warnings).toEqual([expect.stringContaining('kept (more than maxBytes, 100)')]);
  });

  it('64 KiB by default', async () => {
    const { get } = await boot({ providers: [Reports] });
    const fits = 'x'.repeat(64 * 1024 - 100);
    await get(Reports).byDefault('1', fits);
    await expect(get(Reports).byDefault('1', 'again')).resolves.toBe(fits);
    await get(Reports).byDefault('2', 'x'.repeat(64 * 1024));
    await expect(get(Reports).byDefault('2', 'again')).rejects.toMatchObject({ replayable: false });
  });

  it('with 0 nothing is kept, not even nothing', async () => {
    const { get } = await boot({ providers: [Reports] });
    await get(Reports).unkept('1');
    await expect(get(Reports).unkept('1')).rejects.toMatchObject({ replayable: false });
    expect(get(Reports).runs).toBe(1);
  });
});
