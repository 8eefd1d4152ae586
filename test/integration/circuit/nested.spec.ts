import { describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { arg, CircuitBreaker, CircuitBreakers, LockWith } from 'nestjs-cmdx';
import { boot, closeApplicationsAfterEach } from '../../support/application.js';
import { Door } from '../../support/door.js';
import { until } from '../../support/time.js';

closeApplicationsAfterEach();

const API = 'cmdx:cb:api';
const OPTIONS = { minimumCalls: 1, openFor: '10s' } as const;

@Injectable()
class Shop {
  sick = false;
  asked = 0;
  /** Where an order waits that has its price. */
  desk: Door | undefined;

  @CircuitBreaker('api', OPTIONS)
  async order(id: string): Promise<string> {
    const price = await this.price(id);
    await this.desk?.pass();
    return `order of ${price}`;
  }

  /** Also called alone. */
  @CircuitBreaker('api', OPTIONS)
  @LockWith(arg(0))
  async price(_id: string): Promise<number> {
    this.asked += 1;
    if (this.sick) throw new Error('sick');
    return 5;
  }
}

describe('what of a call inside another on the same breaker?', () => {
  it('it is part of the probe around it, and both together are one sample', async () => {
    const { get, clock, telemetry } = await boot({ providers: [Shop] });
    const shop = get(Shop);
    const breakers = get(CircuitBreakers);
    shop.sick = true;
    await expect(shop.price('a')).rejects.toThrow('sick');
    expect(await breakers.inspect(API)).toMatchObject({ state: 'open' });

    shop.sick = false;
    await clock.advance('10s');
    expect(await shop.order('a')).toBe('order of 5');
    expect(await breakers.inspect(API)).toMatchObject({ state: 'closed', calls: 0 });
    const transitions = telemetry.events.filter(({ name }) => name.startsWith('circuit_'));
    expect(transitions.map(({ name }) => name)).toEqual([
      'circuit_opened',
      'circuit_half_opened',
      'circuit_closed',
    ]);
  });

  it('its own end gives nothing back: a second caller waits for the probe around it', async () => {
    const { get, clock } = await boot({ providers: [Shop] });
    const shop = get(Shop);
    shop.sick = true;
    await shop.price('a').catch(() => undefined);
    await clock.advance('10s');
    shop.sick = false;
    const desk = (shop.desk = new Door());
    const order = shop.order('a');
    await until(() => desk.inside === 1, 'the end of the nested call');
    expect(shop.asked).toBe(2);
    await expect(shop.price('b')).rejects.toMatchObject({ code: 'circuit_open' });
    expect(await get(CircuitBreakers).inspect(API)).toMatchObject({ state: 'half_open' });
    desk.open();
    expect(await order).toBe('order of 5');
    expect(await shop.price('b')).toBe(5);
  });

  it('with it the probe around it fails', async () => {
    const { get, clock } = await boot({ providers: [Shop] });
    const shop = get(Shop);
    shop.sick = true;
    await shop.price('a').catch(() => undefined);
    await clock.advance('10s');
    await expect(shop.order('a')).rejects.toThrow('sick');
    expect(await get(CircuitBreakers).inspect(API)).toMatchObject({ state: 'open' });
    expect(shop.asked).toBe(2);
    await expect(shop.price('b')).rejects.toMatchObject({ code: 'circuit_open' });
  });

  it('while it is closed each of them is a sample of its own', async () => {
    const { get } = await boot({ providers: [Shop] });
    expect(await get(Shop).order('a')).toBe('order of 5');
    expect(await get(CircuitBreakers).inspect(API)).toMatchObject({ state: 'closed', calls: 2 });
  });
});
