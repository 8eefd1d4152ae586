import { swcOptions } from './test/support/swc-options.mjs';

export default {
  roots: ['<rootDir>/test'],
  testMatch: ['**/*.spec.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: { '^.+\\.ts$': ['@swc/jest', swcOptions] },
  moduleNameMapper: {
    '^nestjs-cmdx$': '<rootDir>/lib/index.ts',
    '^nestjs-cmdx/redis$': '<rootDir>/lib/store/redis/index.ts',
    '^nestjs-cmdx/testing$': '<rootDir>/lib/testing/index.ts',
    '^nestjs-cmdx/testing/bypass$': '<rootDir>/lib/testing/bypass.ts',
    '^(\\.{1,2}/.*)\\.js$': '$1',
  },
  modulePathIgnorePatterns: ['<rootDir>/dist', '<rootDir>/.cache'],
  setupFiles: ['reflect-metadata'],
  testEnvironment: 'node',
  globalSetup: '<rootDir>/test/support/global-setup.mjs',
};
