import main from '../../jest.config.mjs';

/** The package as its users get it: packed, installed, compiled and run. Needs `npm run build`. */
export default {
  rootDir: import.meta.dirname,
  testMatch: ['<rootDir>/*.packaging.ts'],
  extensionsToTreatAsEsm: main.extensionsToTreatAsEsm,
  transform: main.transform,
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  modulePathIgnorePatterns: ['<rootDir>/consumers'],
  testEnvironment: 'node',
  testTimeout: 300_000,
};
