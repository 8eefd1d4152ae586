import { bypassUnmanaged } from '../envelope/binding.js';

/**
 * For the set-up file of unit tests: instances that no Nest application made run their decorated
 * methods bare. Managed instances stay guarded.
 */
bypassUnmanaged();
