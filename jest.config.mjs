import { availableParallelism } from 'node:os';
import { swcOptions } from './test/support/swc-options.mjs';

export default {
  roots: ['<rootDir>/test'],
  testMatch: ['**/*.spec.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: { '^.+\\.ts$': ['@swc/jest', swcOptions] },
  moduleNameMapper: {
    '^nestjs-cmdx$': '<rootDir>/lib/index.ts',
    '^nestjs-cmdx/redis$': '<rootDir>/lib/store/redis/index.ts',
    '^nestjs-cmdx/row-lock$': '<rootDir>/lib/row-lock.ts',
    '^nestjs-cmdx/testing$': '<rootDir>/lib/testing/index.ts',
    '^nestjs-cmdx/testing/bypass$': '<rootDir>/lib/testing/bypass.ts',
    '^(\\.{1,2}/.*)\\.js$': '$1',
  },
  modulePathIgnorePatterns: ['<rootDir>/dist', '<rootDir>/.cache'],
  setupFiles: ['reflect-metadata'],
  testEnvironment: '<rootDir>/test/support/environment.mjs',
  runner: '<rootDir>/test/support/alone-first-runner.mjs',
  // Much of the time is spent waiting: more at once than there are cores.
  maxWorkers: Math.ceil(availableParallelism() * 1.5),
  // What a file leaves behind is collected again and again; a full process stands still meanwhile.
  workerIdleMemoryLimit: '400MB',
  globalSetup: '<rootDir>/test/support/global-setup.mjs',
};
