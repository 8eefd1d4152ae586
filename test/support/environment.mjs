import { AsyncLocalStorage } from 'node:async_hooks';
import NodeEnvironment from 'jest-environment-node';

/** Whatever a test file and its copy of the library have switched on in this process. */
const switchedOn = new Set();

for (const name of ['run', 'enterWith']) {
  const original = AsyncLocalStorage.prototype[name];
  AsyncLocalStorage.prototype[name] = function (...args) {
    switchedOn.add(this);
    return original.apply(this, args);
  };
}

/**
 * A process runs many test files, each with a copy of the library of its own, and Node carries every
 * `AsyncLocalStorage` that was ever used into each new promise: those of the files before would make
 * every promise of the later ones dearer, and keep what they hold.
 */
export default class Environment extends NodeEnvironment {
  async setup() {
    await super.setup();
    // Node loads what Jest cannot: a CommonJS module that requires one of ES modules.
    this.global.importByNode = (name) => import(name);
  }

  async teardown() {
    for (const storage of switchedOn) storage.disable();
    switchedOn.clear();
    await super.teardown();
  }
}
