/**
 * Shared first lines of every script that has a deadline.
 *
 * `now` is the store's time in microseconds. `is_late(deadline)` compares it with a deadline in
 * milliseconds: a script that ran into a stall must not write for a caller who has given up.
 */
export const STORE_TIME = `
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function is_late(deadline)
  return now / 1000 > tonumber(deadline)
end
`;
