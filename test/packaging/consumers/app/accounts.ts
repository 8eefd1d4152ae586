import { Controller, Inject, Injectable, Module, Param, Post } from '@nestjs/common';
import { CmdxModule, LockWith, RateLimit } from 'nestjs-cmdx';
import { Gate } from './gate.js';

@Injectable()
export class Accounts {
  @LockWith((id: string) => id)
  @RateLimit({ max: 2, per: 60 })
  async reconcile(id: string, gate: Gate): Promise<string> {
    await gate.pass();
    return `reconciled ${id}`;
  }
}

@Controller('accounts')
export class AccountsController {
  constructor(@Inject(Gate) private readonly gate: Gate) {}

  @Post(':id')
  @LockWith((id: string) => id)
  @RateLimit({ max: 2, per: 60 })
  async reconcile(@Param('id') id: string): Promise<{ reconciled: string }> {
    await this.gate.pass();
    return { reconciled: id };
  }
}

@Module({
  imports: [CmdxModule.forRoot()],
  controllers: [AccountsController],
  providers: [Accounts, Gate],
})
export class AppModule {}
