import { STORE_TIME } from './store-time.lua.js';

/**
 * Stores a text.
 *
 * KEYS    the key
 * ARGV    value, ttl ms, 1 to store only if the key is absent (else 0), deadline (store time, ms)
 * answer  { now } when late, else { now, stored 0|1 }
 */
export const SET = `${STORE_TIME}
if is_late(ARGV[4]) then return { now } end
if ARGV[3] == '1' and redis.call('EXISTS', KEYS[1]) == 1 then return { now, 0 } end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return { now, 1 }
`;

/**
 * Adds to a number. A new key gets the ttl, an old one keeps its own; one without a ttl gets it too.
 *
 * KEYS    the key
 * ARGV    by, ttl ms, deadline (store time, ms)
 * answer  { now } when late, else { now, sum }
 */
export const INCR = `${STORE_TIME}
if is_late(ARGV[3]) then return { now } end
local sum = redis.call('INCRBY', KEYS[1], ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return { now, sum }
`;

/**
 * Deletes a key.
 *
 * KEYS    the key
 * ARGV    1 to delete only this value (else 0), value, deadline (store time, ms)
 * answer  { now } when late, else { now, deleted 0|1 }
 */
export const DELETE = `${STORE_TIME}
if is_late(ARGV[3]) then return { now } end
if ARGV[1] == '1' and redis.pcall('GET', KEYS[1]) ~= ARGV[2] then return { now, 0 } end
return { now, redis.call('DEL', KEYS[1]) }
`;
