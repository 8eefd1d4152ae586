import { register } from 'node:module';

register('./sources-loader.mjs', import.meta.url);
