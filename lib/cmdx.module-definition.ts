import { ConfigurableModuleBuilder } from '@nestjs/common';
import type { CmdxModuleOptions } from './cmdx.options.js';

/** A class that makes the module's options: `forRootAsync({ useClass })`. */
export interface CmdxOptionsFactory {
  createCmdxOptions(): CmdxModuleOptions | Promise<CmdxModuleOptions>;
}

export const {
  ConfigurableModuleClass,
  MODULE_OPTIONS_TOKEN: CMDX_MODULE_OPTIONS,
  OPTIONS_TYPE,
  ASYNC_OPTIONS_TYPE,
} = new ConfigurableModuleBuilder<CmdxModuleOptions>({ moduleName: 'Cmdx' })
  .setClassMethodName('forRoot')
  .setFactoryMethodName('createCmdxOptions')
  .setExtras({}, (definition) => ({ ...definition, global: true }))
  .build();
