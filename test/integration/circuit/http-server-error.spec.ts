import { describe, expect, it } from '@jest/globals';
import { Controller, HttpCode, Post } from '@nestjs/common';
import { CircuitBreaker, CircuitBreakers } from 'nestjs-cmdx';
import { ADAPTERS, closeAppsAfterEach, startHttp } from '../../support/http-app.js';

closeAppsAfterEach();

@Controller()
class Gateway {
  @Post('broken')
  @HttpCode(500)
  @CircuitBreaker('upstream', { minimumCalls: 2 })
  async broken(): Promise<object> {
    return { error: 'the upstream is down' };
  }

  @Post('fine')
  @HttpCode(499)
  @CircuitBreaker('other', { minimumCalls: 2 })
  async fine(): Promise<object> {
    return { ok: true };
  }
}

describe.each(ADAPTERS)('what does an answer of 500 and above tell a breaker? (%s)', (adapter) => {
  it('that the call has failed, although no error was thrown', async () => {
    const { app, post } = await startHttp(adapter, { controllers: [Gateway] });
    expect([(await post('/broken')).status, (await post('/broken')).status]).toEqual([500, 500]);
    const refused = await post('/broken');
    expect([refused.status, refused.body]).toMatchObject([503, { code: 'circuit_open' }]);
    await post('/fine');
    const breakers = app.get(CircuitBreakers);
    expect(await breakers.inspect('cmdx:cb:upstream')).toMatchObject({ state: 'open' });
    expect(await breakers.inspect('cmdx:cb:other')).toMatchObject({ calls: 1, failures: 0 });
  });
});
