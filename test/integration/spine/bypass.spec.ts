import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { arg, LockWith } from 'nestjs-cmdx';
// The switch is for the whole process, hence a spec file of its own: jest runs each in its own globals.
import 'nestjs-cmdx/testing/bypass';
import { firstValueFrom, type Observable, of } from 'rxjs';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';

closeApplicationsAfterEach();

@Injectable()
class Accounts {
  constructor(readonly door: Door) {}

  @LockWith(arg(0))
  async reconcile(accountId: string): Promise<string> {
    await this.door.pass();
    return `reconciled ${accountId}`;
  }

  @LockWith(arg(0), { stream: true })
  watch(accountId: string): Observable<string> {
    return of(accountId);
  }
}

@Injectable()
class Nightly extends Accounts {
  override async reconcile(accountId: string): Promise<string> {
    return super.reconcile(accountId);
  }
}

describe("After import 'nestjs-cmdx/testing/bypass'", () => {
  it.each([Accounts, Nightly])('unmanaged instances of %p run bare', async (target) => {
    const accounts = new target(new Door());
    const running = [accounts.reconcile('acct_42'), accounts.reconcile('acct_42')];
    expect(accounts.door.inside).toBe(2);
    accounts.door.open();
    await expect(Promise.all(running)).resolves.toHaveLength(2);
    await expect(firstValueFrom(accounts.watch('acct_42'))).resolves.toBe('acct_42');
  });

  it.each([
    ['by Nest', [Door, Accounts]],
    [
      'by a factory',
      [Door, { provide: Accounts, inject: [Door], useFactory: (door: Door) => new Accounts(door) }],
    ],
    ['as a value', [{ provide: Accounts, useValue: new Accounts(new Door()) }]],
  ])('instances made %s stay guarded', async (_, providers) => {
    const application = await boot({ providers });
    const accounts = application.get(Accounts);
    const running = accounts.reconcile('acct_42');
    await expect(accounts.reconcile('acct_42')).rejects.toMatchObject({ code: 'busy' });
    accounts.door.open();
    await expect(running).resolves.toBe('reconciled acct_42');
  });
});
