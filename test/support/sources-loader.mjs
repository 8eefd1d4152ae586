const SOURCES = {
  'nestjs-cmdx': '../../lib/index.ts',
  'nestjs-cmdx/redis': '../../lib/store/redis/index.ts',
  'nestjs-cmdx/row-lock': '../../lib/row-lock.ts',
  'nestjs-cmdx/testing': '../../lib/testing/index.ts',
};

/** Lets a plain Node process run on the sources, so that it needs no build before it. */
export function resolve(specifier, context, next) {
  const source = SOURCES[specifier];
  if (!source) return next(specifier, context);
  return { url: new URL(source, import.meta.url).href, shortCircuit: true };
}
