/**
 * Reads a key, for how long it stands, and the time by which that was so. Writes nothing.
 *
 * KEYS    the key
 * answer  { now (store time, us), 0 } when there is none, else { now, value, remaining ms (-1: no ttl) }
 */
export const INSPECT = `
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local value = redis.call('GET', KEYS[1])
if not value then return { now, 0 } end
return { now, value, redis.call('PTTL', KEYS[1]) }
`;
