import TestRunner from 'jest-runner';

/**
 * Runs what is named `*.alone.spec.ts` before everything else, one file at a time in this process:
 * those files compare times, or keep every core busy themselves. The others share the machine.
 */
export default class AloneFirstRunner extends TestRunner {
  async runTests(tests, watcher, options) {
    const isAlone = ({ path }) => path.endsWith('.alone.spec.ts');
    await super.runTests(tests.filter(isAlone), watcher, { ...options, serial: true });
    const others = tests.filter((test) => !isAlone(test));
    if (others.length > 0) await super.runTests(others, watcher, options);
  }
}
